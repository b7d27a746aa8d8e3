"""One fit of a trial, in a separate process, and the result of its run."""

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
"""Environment prefixes of launchers, removed for fits, which are not ranks of the launcher that started the sweep."""
PATIENCE = 60.0
"""Seconds that a terminated fit has to write its last checkpoint."""


class Place(NamedTuple):
    """Devices and threads for the fits of one job.

    Attributes:
        devices: number of devices per fit; None = the fit's own default.
        visible: GPUs of the job, in the format of CUDA_VISIBLE_DEVICES; None = all.
        threads: threads per process, unless OMP_NUM_THREADS is set.
    """

    devices: int | None = None
    visible: str | None = None
    threads: int = 1


class Fit:
    """A running fit.

    Args:
        args: arguments of `seqlab fit`; `--run_name` identifies the job that `--resume=auto` continues.
        tags: tags of the run, as JSON; unique to this fit.
        log: file for the output.
        place: devices and threads.
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
        """Exit code; None while running."""
        code = self._process.poll()
        if code == LOST and self._forks:
            self._forks = False
            self._process = self._begin()  # continues from the last checkpoint of the lost process
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
        """Processes of a running fit: one; after it has ended none, or those left over if its server was lost."""
        code = self._process.poll()
        if code is None:
            with suppress(psutil.NoSuchProcess):  # the process has just ended
                return [psutil.Process(self._process.pid)]
        return leftover(self._tags) if code == LOST else []

    def wait(self) -> None:
        """Waits until the process has ended."""
        self._process.wait()

    def why_failed(self, run: TrackedRun | None) -> str:
        """Reason for a failure: the signal that killed the fit, the failure tag of its run, or its last output line."""
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
    """Run of a fit; None if it does not exist yet."""
    settle(store)
    runs = search(store, condition(f"tags.{JOB_TAG}", plan.run_name(trial, seed)), plan.experiment)
    return runs[0] if runs else None


def score(run: TrackedRun, metric: str) -> float:
    """Value used to compare a run: the best of a validation metric, the last of any other.

    Raises:
        ValueError: the run does not have the metric.
    """
    _, value = best_point(run, metric)
    if value is None:
        raise ValueError(f"run {run.name} has no metric {metric}; there are {', '.join(sorted(run.metrics)) or 'none'}")
    return value


def stop(fits: list[Fit]) -> None:
    """Stops fits concurrently, after they have written their checkpoints."""
    end([process for fit in fits for process in fit.processes()])
    for fit in fits:
        fit.wait()


def leftover(tags: str) -> list[psutil.Process]:
    """Processes of a fit left running by a killed sweep: those with these tags, without their children.

    A forked process is identified by its name, because the system shows its server's environment for it.
    """
    left = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and (process.name() == short(tags) or process.environ().get(TAGS) == tags):
                left[process.pid] = process, process.ppid()
    return [process for process, parent in left.values() if parent not in left]


def end(processes: list[psutil.Process]) -> None:
    """Ends processes like a batch queue: SIGTERM first, SIGKILL after `PATIENCE` seconds."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
