"""Parsing and checking of a fit's options without fitting, used by sweeps and jobs before they start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from seqlab.callbacks.beside import check_logged, logged_names
from seqlab.callbacks.max_time import MaxTime
from seqlab.callbacks.rank_watchdog import RankWatchdog
from seqlab.callbacks.speed import Speed
from seqlab.cli.continued import check_findable
from seqlab.cli.fit_callbacks import fit_callbacks
from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import as_list, resolve_names
from seqlab.config.options import check_trainer


class ParsedFit(SeqlabCLI):
    def instantiate_classes(self) -> None:
        """Skips the creation of objects."""

    def _match(self, options: Any) -> None:
        """Creates nothing."""

    def _continue_job(self, options: Any) -> None:
        """Does nothing; the job does not exist yet."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Runs nothing."""


OF_RUNS = ("lr", "num_*", "state_size", "perf/*", "system/*")
"""Metrics that every fit logs."""


def check_fit(args: list[str], objectives: Sequence[str] = ()) -> str | None:
    """Checks the arguments of a fit. Returns its run name, None if it is not set.

    Args:
        args: command-line arguments of `seqlab fit`.
        objectives: metrics that the run must log.

    Raises:
        ValueError: an option is unknown, has an invalid value or conflicts with `--resume auto`; or nothing logs an
            objective.
    """
    options = ParsedFit("fit", resolve_names(args)).config["fit"]
    check_trainer(options.trainer)
    # Each of these checks option values that the parser accepts.
    fit_callbacks(options, {}, Speed(), {})
    RankWatchdog(options.timeout)
    if options.trainer.max_time is not None:
        MaxTime(options.trainer.max_time)
    check_findable(options)
    callbacks = [_class_of(one) for one in as_list(options.trainer.callbacks)]
    names = logged_names(_class_of(options.model), callbacks)
    for objective in objectives:
        check_logged("--objective", objective, names and [*names, *OF_RUNS])
    run_name: str | None = options.run_name
    return run_name


def _class_of(chosen: Any) -> type:
    """Class chosen in a config; the parser has already imported it."""
    module, _, name = chosen.class_path.rpartition(".")
    found: type = getattr(sys.modules[module], name)
    return found
