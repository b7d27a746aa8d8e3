"""Worker of a sweep, which claims trials from the queue, several at a time, and fits each with its seeds."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from optuna.trial import Trial, TrialState

from seqlab.sweeps.fits import Fit, Place, run_of, score, stop
from seqlab.sweeps.plan import Plan
from seqlab.sweeps.queue import BEAT, Queue
from seqlab.tracking.runs import PARENT_TAG
from seqlab.tracking.store import Store
from seqlab.tracking.writes import COSTS_TAG, MATCHED_TAG

TICK, LOOK = 0.02, 2.0
"""Seconds between checks of the processes, and between checks of the storage."""


@dataclass
class Job:
    """A trial running in this worker.

    Attributes:
        fit: current fit; None = not started.
        values: value of each objective, for each finished seed.
    """

    trial: Trial
    setting: dict[str, Any]
    place: Place
    fit: Fit | None = None
    values: list[list[float]] = field(default_factory=list)
    reported: int = 0


class Worker:
    """Runs trials until none is waiting or the worker is stopped.

    Args:
        parent: id of the sweep's run.
        logs: folder for the output of the fits.
        places: one entry per concurrent trial.
        stopped: returns whether to stop; called between checks, when each started fit is a process that can be stopped.
        tell: called with a line of text when a trial ends or is requeued.
        show: called every `LOOK` seconds.
    """

    def __init__(
        self,
        plan: Plan,
        queue: Queue,
        parent: str,
        logs: Path,
        places: list[Place],
        stopped: Callable[[], bool],
        tell: Callable[[str], None],
        show: Callable[[], None],
    ) -> None:
        self.plan, self.queue, self.parent, self.logs = plan, queue, parent, logs
        self._stopped, self.tell, self.show, self.store = stopped, tell, show, Store()
        self._free, self._jobs = list(reversed(places)), list[Job]()

    def run(self, *, to_the_end: bool) -> None:
        """Runs trials; with `to_the_end`, also waits for the trials of other machines.

        However it ends, its fits are stopped and their trials are requeued.
        """
        looked, beat = -math.inf, time.monotonic()
        try:
            while not self._stopped():
                ended = [job for job in self._jobs if not self._goes_on(job)]
                for job in ended:
                    self._jobs.remove(job)
                    self._free.append(job.place)
                if look := time.monotonic() - looked > LOOK:
                    looked = time.monotonic()
                    for number in self.queue.put_back_lost():
                        self.tell(f"trial {number} is queued again: its process is gone")
                    if self.plan.prune:
                        self._prune()
                    self.show()
                if time.monotonic() - beat > BEAT:
                    beat = time.monotonic()
                    self.queue.beat([job.trial for job in self._jobs])
                if ended or look:  # a trial has ended here, or may have been requeued elsewhere
                    for setting in self.queue.extend():
                        told = ", ".join(f"{name} {value}" for name, value in setting.items())
                        self.tell(f"the best {self.plan.extend} is at an end of its grid, which continues: {told}")
                    self._take()
                    if not self._jobs and not (to_the_end and self.queue.left):
                        return
                time.sleep(TICK)
        finally:
            stop([job.fit for job in self._jobs if job.fit is not None])
            for job in self._jobs:
                self.queue.put_back(job.trial)

    def _take(self) -> None:
        while self._free and (claimed := self.queue.claim()):
            self._jobs.append(Job(*claimed, self._free.pop()))
            self._begin(self._jobs[-1])

    def _begin(self, job: Job) -> None:
        number, seed, plan = job.trial.number, len(job.values), self.plan
        args = [*plan.flags(job.setting, seed), f"--experiment={plan.experiment}"]
        tags = {PARENT_TAG: self.parent, "sweep": plan.name, "sweep.trial": str(number), "sweep.seed": str(seed)}
        log = self.logs / f"{number}-s{seed}.log"
        job.fit = Fit([*args, f"--run_name={plan.run_name(number, seed)}"], json.dumps(tags), log, job.place)

    def _goes_on(self, job: Job) -> bool:
        assert job.fit is not None
        if job.fit.code is None:
            return True
        number = job.trial.number
        run = run_of(self.plan, number, len(job.values), self.store)
        try:
            if job.fit.code != 0 or run is None:
                raise ValueError(job.fit.why_failed(run))
            job.values.append([score(run, metric) for metric in self.plan.objectives])
        except ValueError as error:
            job.trial.set_user_attr("error", str(error))
            self.queue.study.tell(job.trial, state=TrialState.FAIL)
            self.tell(f"trial {number} failed: {error}")
            return False
        if len(job.values) < self.plan.seeds:
            self._begin(job)
            return True
        job.trial.set_user_attr("seeds", job.values)
        matched = {name: run.tags[name] for name in (MATCHED_TAG, COSTS_TAG) if name in run.tags}
        job.trial.set_user_attr(MATCHED_TAG, matched)
        means = [fmean(values) for values in zip(*job.values, strict=True)]
        self.queue.study.tell(job.trial, means)
        named = ", ".join(f"{name} {mean:.4g}" for name, mean in zip(self.plan.objectives, means, strict=True))
        solved = f" · {matched[COSTS_TAG].partition(';')[0]}" if matched else ""
        total = len(self.queue.study.get_trials(deepcopy=False))
        self.tell(f"trial {number} of {total}: {named}{solved}")
        return False

    def _prune(self) -> None:
        """Reports the validations of each first-seed fit, counted from 1, and stops the fits to be pruned."""
        for job in [job for job in self._jobs if not job.values]:
            run = run_of(self.plan, job.trial.number, 0, self.store)
            history = [] if run is None else run.history(self.plan.objectives[0])
            for step in range(job.reported, len(history)):
                job.trial.report(history[step][1], step + 1)
                job.reported = step + 1
                if job.trial.should_prune():
                    self._end_early(job)
                    break

    def _end_early(self, job: Job) -> None:
        assert job.fit is not None
        stop([job.fit])
        self._jobs.remove(job)
        self._free.append(job.place)
        self.queue.study.tell(job.trial, state=TrialState.PRUNED)
        self.tell(f"trial {job.trial.number} pruned after {job.reported} validations")
