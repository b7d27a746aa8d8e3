"""The options of a fit, parsed and checked without fitting: what a sweep and a job ask before they begin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from seqlab.callbacks.beside import check_logged, logged_names
from seqlab.callbacks.max_time import MaxTime
from seqlab.callbacks.roll_call import RollCall
from seqlab.callbacks.speed import Speed
from seqlab.cli.continued import check_findable
from seqlab.cli.fit_callbacks import fit_callbacks
from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import as_list, resolve_names
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


OF_RUNS = ("lr", "num_*", "state_size", "perf/*", "system/*")
"""Metrics that the run of any fit has."""


def check_fit(args: list[str], objectives: Sequence[str] = ()) -> str | None:
    """The name of the run that a job of such fits would have; None where it has yet to get one.

    Args:
        objectives: metrics that the run is to have.

    Raises:
        ValueError: an option is not one, or has another value than it takes, or does not go with `--resume auto`; or
            nothing logs an objective.
    """
    options = ParsedFit("fit", resolve_names(args)).config["fit"]
    check_trainer(options.trainer)
    # Each refuses a value of its option that the parser takes.
    fit_callbacks(options, {}, Speed(), {})
    RollCall(options.timeout)
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
    """The class of a part of a config; the parser has imported it."""
    module, _, name = chosen.class_path.rpartition(".")
    found: type = getattr(sys.modules[module], name)
    return found
