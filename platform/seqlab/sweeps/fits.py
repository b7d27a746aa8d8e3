"""One fit of a trial: a process of its own, whatever becomes of it, and what its run says in the end."""

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
"""What the environment has of who started the sweep: a fit of it is no rank of theirs."""
PATIENCE = 60.0
"""Seconds that a fit which is told to stop has for its last checkpoint."""


class Place(NamedTuple):
    """Where the fits of one job run.

    Attributes:
        devices: how many a fit takes; None = what it takes by itself.
        visible: the GPUs that are the job's, as CUDA names them; None = all.
        threads: of a process, where the environment does not say.
    """

    devices: int | None = None
    visible: str | None = None
    threads: int = 1


class Fit:
    """A fit that runs.

    Args:
        args: what `seqlab fit` is given; its `--run_name` is the job's, which `--resume=auto` goes on with.
        tags: of its run, as JSON; no other fit's.
        log: file of what it prints.
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
        """What has to end for it to end: one process, none once it has ended."""
        code = self._process.poll()
        if code is None:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                return [psutil.Process(self._process.pid)]
        return leftover(self._tags) if code == LOST else []

    def wait(self) -> None:
        """Until it has ended."""
        self._process.wait()

    def last_words(self, run: TrackedRun | None) -> str:
        """Why it failed: what its run says, or the last line that it printed, or the signal that killed it."""
        code = self.code
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        if run is not None and FAILURE_TAG in run.tags:
            return run.tags[FAILURE_TAG]
        lines = [line.strip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line.removeprefix("seqlab: ") for line in reversed(lines) if line), f"exit code {code}")


def command(args: list[str]) -> list[str]:
    """Of a fit with these arguments."""
    return [sys.executable, "-m", "seqlab", "fit", *args]


def run_of(plan: Plan, trial: int, seed: int, store: Store) -> TrackedRun | None:
    """The run of a fit, if it has one yet."""
    settle(store)
    runs = search(store, condition(f"tags.{JOB_TAG}", plan.run_name(trial, seed)), plan.experiment)
    return runs[0] if runs else None


def score(run: TrackedRun, metric: str) -> float:
    """What a run is compared by: of a validation metric the best value, of another one the last.

    Raises:
        ValueError: the run has none.
    """
    _, value = best_point(run, metric)
    if value is None:
        raise ValueError(f"run {run.name} has no metric {metric}; there are {', '.join(sorted(run.metrics)) or 'none'}")
    return value


def stop(fits: list[Fit]) -> None:
    """Has fits end, all at once, their checkpoints written."""
    end([process for fit in fits for process in fit.processes()])
    for fit in fits:
        fit.wait()


def leftover(tags: str) -> list[psutil.Process]:
    """What a sweep that was killed has left running of a fit: the processes that are told these tags, but not those
    that are theirs.

    One that is forked is known by its name: what the system shows of its environment is the server's.
    """
    left = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and (process.name() == short(tags) or process.environ().get(TAGS) == tags):
                left[process.pid] = process, process.ppid()
    return [process for process, parent in left.values() if parent not in left]


def end(processes: list[psutil.Process]) -> None:
    """Has them end as a batch queue does: asked first."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
