"""The options of a fit, parsed and checked without fitting: what a sweep and a job ask before they begin."""

from __future__ import annotations

from typing import Any

from seqlab.cli.continued import check_findable
from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import resolve_names
from seqlab.config.options import check_trainer


class ParsedFit(SeqlabCLI):
    def instantiate_classes(self) -> None:
        """Nothing is made."""

    def _match(self, options: Any) -> None:
        """Nothing is made."""

    def _continue_job(self, options: Any) -> None:
        """There is no job yet."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Nothing is run."""


def check_fit(args: list[str]) -> str | None:
    """The name of the run that a job of such fits would have; None where it has yet to get one.

    Raises:
        ValueError: an option is not one, or has another value than it takes, or does not go with `--resume auto`.
    """
    options = ParsedFit("fit", resolve_names(args)).config["fit"]
    check_trainer(options.trainer)
    check_findable(options)
    run_name: str | None = options.run_name
    return run_name
