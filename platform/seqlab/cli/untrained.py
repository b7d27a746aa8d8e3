"""Untrained model of a config, as at the start of a fit."""

from __future__ import annotations

from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import resolve_names
from seqlab.trained.load import LoadedRun


class _Untrained(SeqlabCLI):
    def _run_subcommand(self, subcommand: str) -> None:
        """Runs nothing."""


def untrained(config: str) -> LoadedRun:
    """Untrained model and data of a config, given by packaged name or path.

    Raises:
        ValueError: the config or its data do not exist.
    """
    cli = _Untrained("fit", resolve_names(["--config", config, "--trainer.logger=false"]))
    data = cli.datamodule
    return LoadedRun(
        None,
        None,
        cli.config_dump,
        cli.model.eval(),
        cli.model.model,
        getattr(data, "tokenizer", None),
        getattr(data, "source_tokenizer", None),
        getattr(data, "labels", None) or [],
        None,
        data,
    )
