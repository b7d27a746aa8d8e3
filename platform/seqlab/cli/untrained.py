"""Starting point of a fit."""

from __future__ import annotations

from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import resolve_names
from seqlab.trained.load import LoadedRun


class _Untrained(SeqlabCLI):
    def _run_subcommand(self, subcommand: str) -> None:
        """Runs nothing."""


def untrained(config: str) -> LoadedRun:
    """Starting point of a fit of a config (a packaged one's name, or a path), its data read.

    Raises:
        ValueError: there is no such config, or no data.
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
