"""Verbs for training and evaluation, run by Lightning: fit, validate, test, predict, and resume."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from seqlab.cli.verb import RUN, TRUST, Verb, verb
from seqlab.files.large_imports import uncollected

LIGHTNING = {
    "fit": "train a model",
    "validate": "evaluate a trained model on the validation split",
    "test": "evaluate a trained model on the test split",
    "predict": "write a trained model's predictions for the test split",
}


COUNTS = (
    "GROUP_RANK",
    "LOCAL_RANK",
    "MASTER_PORT",
    "NODE_RANK",
    "RANK",
    "WORLD_SIZE",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
)
"""Environment variables of launchers that Lightning reads as numbers."""


def directly(name: str, args: list[str]) -> int | None:
    """Runs a Lightning verb or shows its help; None if a RUN follows, whose config must be read first."""
    from seqlab.config.options import wants_help

    if wants_help(args):
        from seqlab.config.short_help import show_help

        show_help(name, LIGHTNING[name], args)
        return 0
    of_run = name != "fit" and args and not args[0].startswith("-")
    return None if of_run else lightning(name, args)


def lightning(name: str, args: list[str], *, run_id: str | None = None) -> int:
    from seqlab.config.configs import resolve_names
    from seqlab.files.plain_values import check_text

    for arg in args:
        check_text(arg, "an argument")
    args = resolve_names(args)

    def run() -> None:
        from seqlab.cli.lightning_cli import SeqlabCLI
        from seqlab.parallel import part

        SeqlabCLI(name, args, run_id=run_id)
        part()

    return ran(name, run)


def ran(name: str, run: Callable[[], None]) -> int:
    """Runs a Lightning verb and returns its exit code."""
    if "lightning" not in sys.modules and os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"seqlab {name}: loading PyTorch and Lightning", file=sys.stderr, flush=True)
    _check_counts()
    import_lightning()
    _check_tasks()
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from seqlab.callbacks.crash_report import crash_report, spoken
    from seqlab.callbacks.stopping import exit_code
    from seqlab.config.quiet import quiet

    quiet()
    with crash_report():
        try:
            run()
        except MisconfigurationException as error:
            raise ValueError(str(error)) from error
        except SystemExit as end:
            return exit_code(end)
        except Exception as error:
            if os.environ.get("SEQLAB_DEBUG"):
                raise
            if spoken() is not None:
                return 1
            from seqlab.cli.lightning_parts import said_by_part

            if (said := said_by_part(error)) is None:
                raise
            raise ValueError(said) from error
    return 0


def _check_counts() -> None:
    """Checks that launcher variables are numbers; Lightning reads some of them on import."""
    for name in COUNTS:
        if not (given := os.environ.get(name, "0")).isdecimal():
            raise ValueError(f"the environment variable {name} is {given!r}; accepted: a whole number")


def _check_tasks() -> None:
    """Refuses several SLURM tasks without a number of tasks per node."""
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    tasks = os.environ.get("SLURM_NTASKS", "1")
    if int(tasks) > 1 and "SLURM_NTASKS_PER_NODE" not in os.environ and SLURMEnvironment.detect():
        raise ValueError(
            f"SLURM started {tasks} tasks (SLURM_NTASKS) without --ntasks-per-node, the number of processes on "
            "each node; give sbatch or srun --ntasks-per-node, or unset SLURM_NTASKS for a fit of one process"
        )


def import_lightning() -> None:
    """Imports everything that Lightning's verbs need, including the blocks."""
    with uncollected(first="lightning" not in sys.modules):
        from seqlab.config.configs import import_blocks
        from seqlab.config.quiet import import_torchmetrics

        import_torchmetrics()
        import seqlab.cli.lightning_cli  # noqa: F401

        import_blocks()  # so that `SeqlabCLI` finds them imported


@verb("continue a run from its last checkpoint", RUN, TRUST)
def resume(options: argparse.Namespace) -> int:
    from seqlab.checkpoints.io import read_checkpoint
    from seqlab.config.trust import only_trusted
    from seqlab.tracking.runs import find_run, settle
    from seqlab.tracking.store import Store
    from seqlab.trained.load import check_stored

    given = [option for option in options.overrides if option.partition("=")[0] in ("--match", "--match_by", "--to")]
    if given:
        raise ValueError(f"{given[0]} solves for the size of a new model; a resumed run keeps its size")
    settle(store := Store())
    run = find_run(options.target, store)
    checkpoint = run.last_checkpoint
    if checkpoint is None:
        raise ValueError(f"run {run.name} has no checkpoint to continue from")
    stored = check_stored(checkpoint, read_checkpoint(checkpoint, weights=False), options.trust, run.config)
    config = f"--config={json.dumps(stored['config'])}"
    with only_trusted(options.trust):
        return lightning("fit", [config, f"--ckpt_path={checkpoint}", *options.overrides], run_id=run.id)


def evaluate(options: argparse.Namespace) -> int:
    """Runs `validate`, `test` or `predict` on a RUN, with its config or on other data with the run's tokenizers."""
    from seqlab.config.trust import only_trusted
    from seqlab.trained.load import stored_run
    from seqlab.trained.same_vocabulary import with_stored_tokenizers

    stored, checkpoint = stored_run(options.target, trust=options.trust)
    config = stored["config"]
    with TemporaryDirectory() as folder, only_trusted(options.trust):
        if options.overrides:
            config = with_stored_tokenizers(config, stored, Path(folder))
        args = [f"--config={json.dumps(config)}", f"--ckpt_path={checkpoint}", *options.overrides]
        return lightning(options.verb, args)


VERBS = (*(Verb(name, does, (RUN, TRUST), evaluate) for name, does in LIGHTNING.items()), resume)
TAKE_OVERRIDES = ("resume", "profile", "submit", "sweep", "validate", "test", "predict")
"""Verbs that pass unknown options to Lightning."""
