"""One fit of a trial: a process of its own, whatever becomes of it, and the result of its run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import NamedTuple

import psutil

from seqlab.comparison.rows import best_point
from seqlab.sweeps.forked import LOST, Forked, short
from seqlab.sweeps.plan import Plan
from seqlab.tracking.job import JOB_TAG
from seqlab.tracking.provenance import TAGS
from seqlab.tracking.runs import TrackedRun, condition, search, settle
from seqlab.tracking.store import Store
from seqlab.tracking.writes import FAILURE_TAG

LAUNCHERS = ("SLURM_", "TORCHELASTIC_")
"""Environment prefixes of the launcher that started the sweep: a fit is not one of its ranks."""
PATIENCE = 60.0
"""Seconds that a fit told to stop has for its last checkpoint."""


class Place(NamedTuple):
    """Devices and threads for the fits of one job.

    Attributes:
        devices: how many a fit takes; None = what it takes by itself.
        visible: the GPUs that are the job's, as CUDA names them; None = all.
        threads: of a process, where the environment does not say.
    """

    devices: int | None = None
    visible: str | None = None
    threads: int = 1


class Fit:
    """A running fit.

    Args:
        args: arguments of `seqlab fit`; its `--run_name` is the job's, which `--resume=auto` goes on with.
        tags: tags of its run, as JSON; no other fit has the same.
        log: file for its output.
    """

    def __init__(self, args: Sequence[str], tags: str, log: Path, place: Place) -> None:
        self.log, self._tags, self._forks = log, tags, True
        env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        env = {"OMP_NUM_THREADS": str(place.threads), **env, TAGS: self._tags}
        args = [*args, "--resume=auto"]
        if place.devices is not None:
            args.append(f"--trainer.devices={place.devices}")
        if place.visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = place.visible
        log.parent.mkdir(parents=True, exist_ok=True)
        self._args, self._env = args, env
        self._process = self._begin()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        code = self._process.poll()
        if code == LOST and self._forks:
            self._forks = False
            self._process = self._begin()  # where the one that nobody waits for has come to
            return None
        return code

    def _begin(self) -> Forked | Popen[bytes]:
        end(leftover(self._tags))
        if self._forks:
            with suppress(OSError, EOFError):
                return Forked(["fit", *self._args], self._env, self.log, short(self._tags))
        with self.log.open("ab") as out:
            return Popen(command(self._args), stdin=DEVNULL, stdout=out, stderr=STDOUT, env=self._env)

    def processes(self) -> list[psutil.Process]:
        """Processes that have to end for it to end: one, or none once it has ended."""
        code = self._process.poll()
        if code is None:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                return [psutil.Process(self._process.pid)]
        return leftover(self._tags) if code == LOST else []

    def wait(self) -> None:
        """Waits until it has ended."""
        self._process.wait()

    def last_words(self, run: TrackedRun | None) -> str:
        """Reason for its failure: the signal that killed it, what its run says, or the last line that it printed."""
        code = self.code
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        if run is not None and FAILURE_TAG in run.tags:
            return run.tags[FAILURE_TAG]
        lines = [line.strip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line.removeprefix("seqlab: ") for line in reversed(lines) if line), f"exit code {code}")


def command(args: list[str]) -> list[str]:
    """Command line of a fit with these arguments."""
    return [sys.executable, "-m", "seqlab", "fit", *args]


def run_of(plan: Plan, trial: int, seed: int, store: Store) -> TrackedRun | None:
    """The run of a fit, if it has one yet."""
    settle(store)
    runs = search(store, condition(f"tags.{JOB_TAG}", plan.run_name(trial, seed)), plan.experiment)
    return runs[0] if runs else None


def score(run: TrackedRun, metric: str) -> float:
    """Value that a run is compared by: the best of a validation metric, the last of any other.

    Raises:
        ValueError: the run has none.
    """
    _, value = best_point(run, metric)
    if value is None:
        raise ValueError(f"run {run.name} has no metric {metric}; there are {', '.join(sorted(run.metrics)) or 'none'}")
    return value


def stop(fits: list[Fit]) -> None:
    """Stops fits, all at once, with their checkpoints written."""
    end([process for fit in fits for process in fit.processes()])
    for fit in fits:
        fit.wait()


def leftover(tags: str) -> list[psutil.Process]:
    """Processes of a fit that a killed sweep has left running: those with these tags, without their own children.

    A forked one is known by its name: the environment that the system shows for it is the server's.
    """
    left = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and (process.name() == short(tags) or process.environ().get(TAGS) == tags):
                left[process.pid] = process, process.ppid()
    return [process for process, parent in left.values() if parent not in left]


def end(processes: list[psutil.Process]) -> None:
    """Ends processes as a batch queue does: asks first, then kills."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
