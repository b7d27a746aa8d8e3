"""Verb for sweeps."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqlab.cli.verb import argument, verb, whole_number

if TYPE_CHECKING:
    from seqlab.sweeps.fits import Place
    from seqlab.sweeps.plan import Plan
    from seqlab.sweeps.queue import Queue
    from seqlab.tracking.logger import RunLogger
    from seqlab.tracking.store import Store

BESIDE = 8
"""Terminal lines reserved for other output than the table while a sweep runs."""
JOINING = 60.0
"""Seconds that a worker waits for the sweep to begin, because a batch queue starts all processes at once."""


@verb(
    "fit a config many times with varying options",
    argument(
        "file", nargs="?", metavar="SWEEP.yaml", help="YAML file with these options, and options of fit under `fit`"
    ),
    argument("--config", action="append", metavar="NAME|PATH", help="as in fit"),
    argument("--vary", action="append", metavar="OPTION=VALUES", help="LOW..HIGH, LOW..HIGH:log, or A,B,C; repeatable"),
    argument("--seeds", type=whole_number, metavar="N", help="fits per trial, scored by their mean; default: 1"),
    argument("--trials", type=whole_number, metavar="N", help="number of trials; a grid runs all"),
    argument("--jobs", type=whole_number, metavar="N", help="concurrent trials; default: 1"),
    argument("--sampler", metavar="S", help="tpe, random or grid; default: tpe"),
    argument(
        "--objective",
        action="append",
        metavar="M,...",
        help="metrics to optimise; several give a Pareto front; default: val/loss",
    ),
    argument("--prune", action="store_const", const=True, help="stop bad trials early by successive halving"),
    argument("--extend", metavar="OPTION", help="continue a grid whose best value of this option is at an end"),
    argument("--name", metavar="NAME", help="name of the sweep; default: derived from its options, so that it resumes"),
    argument("--experiment", metavar="NAME", help="experiment of the runs; default: the sweep's name"),
    argument("--storage", metavar="URL", help="Optuna storage; default: sweeps.db beside the runs"),
    argument(
        "--devices-per-trial",
        type=whole_number,
        metavar="N",
        help="--trainer.devices of each fit, each with GPUs of its own",
    ),
    argument("--worker", action="store_true", help="join a sweep that the same command started without this flag"),
)
def sweep(options: argparse.Namespace) -> int:
    from seqlab.sweeps.plan import TYPES, make_plan, read_file

    given: dict[str, Any] = {} if options.file is None else read_file(Path(options.file))
    given |= {key: value for key in TYPES if (value := getattr(options, key, None)) is not None}
    if isinstance(given.get("vary"), list):
        given["vary"] = _varied(given["vary"])
    if options.objective:
        given["objective"] = ",".join(options.objective)
    return carry_out(make_plan(given, options.overrides), given, worker=options.worker)


def carry_out(plan: Plan, given: Mapping[str, Any], *, worker: bool = False) -> int:
    """Runs a sweep, or works on one that is running, and returns the exit code.

    Args:
        given: options of the sweep by the keys of `TYPES`.

    Raises:
        ValueError: a fit's option is invalid, or the sweep cannot be begun or continued.
    """
    from seqlab.files.plain_tables import SQLITE
    from seqlab.sweeps.queue import Queue, told
    from seqlab.tracking.runs import find_run
    from seqlab.tracking.store import Store

    store = Store()
    places = _places(given.get("jobs", 1), given.get("devices_per_trial"))
    _check_fits(plan)
    url = given.get("storage", f"{SQLITE}{store.root / 'sweeps.db'}")
    _check_storage(url, store, is_given="storage" in given)
    if worker:
        queue = Queue(plan, url, join=JOINING)
        parent = find_run(queue.study.user_attrs["parent"], store)
        with told(url):
            _work(plan, queue, parent.id, parent.artifacts, places, to_the_end=False)
        return 0
    from filelock import FileLock, Timeout

    store.root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(store.root / f".sweep-{plan.name}.lock", timeout=0), told(url):
            return _conduct(plan, Queue(plan, url), places, store)
    except Timeout:
        raise ValueError(f"sweep {plan.name} is already running on this machine; use --worker to join it") from None


def _check_storage(url: str, store: Store, *, is_given: bool) -> None:
    """Refuses a storage inside a bundle, a run or another store, and a default storage that is a link."""
    from seqlab.files.place_to_write import check_around
    from seqlab.files.plain_tables import SQLITE

    if not url.startswith(SQLITE):
        return
    file = Path(url.removeprefix(SQLITE)).absolute()
    if file.parent.resolve() != store.root:
        check_around(f"--storage {url}", file.parent)
    if file.is_symlink() and not is_given:
        raise ValueError(f"{file} is a link; if its target is your storage, name it with --storage")


def _conduct(plan: Plan, queue: Queue, places: list[Place], store: Store) -> int:
    """Runs a sweep to its end, and reports the results on stdout and in its run."""
    from seqlab.tracking.job import run_of_job
    from seqlab.tracking.logger import RunLogger
    from seqlab.tracking.runs import SWEEP_TAG
    from seqlab.tracking.writes import FAILURE_TAG

    before = run_of_job(plan.name, plan.experiment, "", store)
    logger = RunLogger(plan.experiment, name=plan.name, run_id=None if before is None else before.id)
    logger.begin()
    assert logger.run_id is not None and logger.artifacts is not None
    queue.study.set_user_attr("parent", logger.run_id)
    logger.log_hyperparams({**plan.settings, "trials": plan.trials})
    logger.log_tags({"sweep": plan.name, SWEEP_TAG: str(plan.trials)})
    print(f"Sweep {plan.name}: {plan.trials} trials of {_count(plan.seeds, 'fit')} · run {logger.run_id}", flush=True)
    try:
        _work(plan, queue, logger.run_id, logger.artifacts, places, to_the_end=True)
        return _tell(plan, queue, logger, store)
    except BaseException as error:
        logger.status = "KILLED"
        logger.log_tags({FAILURE_TAG: f"{type(error).__name__}: {error}"})
        raise
    finally:
        logger.finalize("success")


def _work(plan: Plan, queue: Queue, parent: str, folder: Path, places: list[Place], *, to_the_end: bool) -> None:
    """Works on a sweep. On Ctrl-C or a batch queue's signal, its fits are stopped and their trials are requeued.

    Raises:
        StoppedError: a signal was received.
    """
    from rich.console import Console
    from rich.live import Live

    from seqlab.callbacks.stopping import StoppedError, StopSignals
    from seqlab.sweeps.result import table
    from seqlab.sweeps.work import Worker

    console, signals = Console(), StopSignals()
    with Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else nullcontext() as live:

        def tell(line: str) -> None:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

        def show() -> None:
            if live is not None:
                live.update(table(plan, queue.study, max(1, console.height - BESIDE)), refresh=True)

        worker = Worker(plan, queue, parent, folder / "fits", places, lambda: bool(signals.received), tell, show)
        signals.catch("step of each fit")
        try:
            worker.run(to_the_end=to_the_end)
        finally:
            signals.release()
    if signals.received:
        stopped = StoppedError(signals.received)
        print(f"{stopped}: {_count(queue.left, 'trial')} to go · next: the same command", file=sys.stderr)
        raise stopped


def _tell(plan: Plan, queue: Queue, logger: RunLogger, store: Store) -> int:
    """Prints the table, the importance of each option, and the best configs. Stores these and a report in the run."""
    from rich.console import Console

    from seqlab.comparison.comparison import compare
    from seqlab.comparison.report import page
    from seqlab.sweeps.result import best_trials, config_of, failures, importance, table
    from seqlab.tracking.writes import MATCHED_TAG

    Console().print(table(plan, queue.study))
    for reason, trials in failures(queue.study).items():
        print(f"Failed: {'trial' if len(trials) == 1 else 'trials'} {', '.join(map(str, trials))}: {reason}")
    best = best_trials(queue.study)
    if not best:
        logger.status = "FAILED"
        print("no trial is complete; their output is in", f"{logger.artifacts}/fits", file=sys.stderr)
        return 1
    for objective, shares in importance(plan, queue.study).items():
        print(f"What {objective} depends on: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    for trial in best:
        name = "best.yaml" if len(best) == 1 else f"best-{trial.number}.yaml"
        logger.log_text(config_of(plan, trial.number, store), name)
        assert logger.artifacts is not None and trial.values is not None
        print(f"Best: trial {trial.number} · next: seqlab fit --config {shlex.quote(str(logger.artifacts / name))}")
    if len(best) == 1:
        logger.log_metrics(dict(zip(plan.objectives, best[0].values, strict=True)))
        logger.log_tags(best[0].user_attrs.get(MATCHED_TAG, {}))
    assert logger.run_id is not None
    logger.log_text(page(compare([logger.run_id], metric=plan.objectives[0], store=store)), "report.html")
    return 0


def _check_fits(plan: Plan) -> None:
    """Checks the fits of a plan: each value of a list and both ends of a range, with the first value of other options.

    Raises:
        ValueError: an option is unknown or has an invalid value.
    """
    from optuna.distributions import CategoricalDistribution

    from seqlab.cli.parsed_fit import check_fit
    from seqlab.config.quiet import quiet
    from seqlab.sweeps.space import read_space

    quiet()
    ends = {
        name: of.choices if isinstance(of, CategoricalDistribution) else (of.low, of.high)  # type: ignore[attr-defined]
        for name, of in read_space(plan.vary).items()
    }
    first = {name: values[0] for name, values in ends.items()}
    settings = [first, *({**first, name: value} for name, values in ends.items() for value in values[1:])]
    for setting in settings:
        check_fit(plan.flags(setting, 0), plan.objectives)


def _places(jobs: int, devices: int | None) -> list[Place]:
    """Place of each job's fits: an equal share of the cores and, if `devices` is given, separate GPUs.

    Raises:
        ValueError: there are fewer GPUs than the jobs need.
    """
    import torch

    from seqlab.sweeps.fits import Place

    threads = max(1, (os.cpu_count() or 1) // jobs // (devices or 1))
    if devices is not None and devices < 1:
        raise ValueError(f"--devices-per-trial must be at least 1, got {devices}")
    there = torch.cuda.device_count()
    if devices is None or not there:
        return [Place(devices, None, threads)] * jobs
    if jobs * devices > there:
        raise ValueError(
            f"--jobs {jobs} of --devices-per-trial {devices} need {jobs * devices} GPUs; there are {there}"
        )
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(there)))).split(",")
    return [Place(devices, ",".join(names[job * devices : (job + 1) * devices]), threads) for job in range(jobs)]


def _varied(texts: list[str]) -> dict[str, str]:
    varied: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name and equals and values):
            raise ValueError(f"--vary {text}: accepted: OPTION=LOW..HIGH, OPTION=LOW..HIGH:log, OPTION=A,B,C")
        if (name := name.removeprefix("--")) in varied:
            raise ValueError(
                f"--vary {text}: {name} already varies over {varied[name]}; give all its values in one --vary"
            )
        varied[name] = values
    return varied


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


VERBS = (sweep,)
