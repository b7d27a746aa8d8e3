"""Several fits, some of them at a time. Finished fits are not repeated, and unfinished ones continue."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqlab.callbacks.stopping import StoppedError, StopSignals
from seqlab.sweeps.fits import Fit, Place, stop
from seqlab.tracking.job import JOB_TAG
from seqlab.tracking.runs import TrackedRun, search, settle
from seqlab.tracking.store import Store

TICK = 0.02
"""Seconds between checks of the fits."""


@dataclass(frozen=True)
class Job:
    """A fit to be made.

    Attributes:
        name: run name, unique in its experiment; the same name continues a stopped fit.
        args: arguments of `seqlab fit`.
        tags: further tags of the run.
    """

    name: str
    args: Sequence[str]
    tags: Mapping[str, str] = field(default_factory=dict)


def fit_all(jobs: Sequence[Job], experiment: str, at_once: int) -> dict[str, TrackedRun]:
    """Fits the jobs that are not finished, and returns the finished runs of the experiment by job name.

    A failed fit is told on stderr and is missing from the result; its output is in `fits/EXPERIMENT` of the store.

    Args:
        at_once: number of concurrent fits, each with an equal share of the cores.

    Raises:
        StoppedError: a signal was received. The fits have written checkpoints, from which the same call continues.
    """
    store, place = Store(), Place(threads=max(1, (os.cpu_count() or 1) // at_once))
    done = finished(store, experiment)
    waiting = [job for job in jobs if job.name not in done]
    running: list[tuple[str, Fit]] = []
    signals, total = StopSignals(), len(waiting)
    signals.catch("step of each fit")
    try:
        while (waiting or running) and not signals.received:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                args = [*job.args, f"--experiment={experiment}", f"--run_name={job.name}"]
                log = store.root / "fits" / experiment / f"{job.name}.log"
                # the name among the tags tells apart two fits, even of one arm
                running.append((job.name, Fit(args, json.dumps({**job.tags, "fit": job.name}), log, place)))
            for name, fit in [one for one in running if one[1].code is not None]:
                running.remove((name, fit))
                why = "" if fit.code == 0 else f" failed: {fit.why_failed(None)}; see {fit.log}"
                print(f"fit {total - len(waiting) - len(running)} of {total}: {name}{why}", file=sys.stderr)
            time.sleep(TICK)
    finally:
        stop([fit for _, fit in running])
        signals.release()
    if signals.received:
        raise StoppedError(signals.received)
    return finished(store, experiment) if total else done


def finished(store: Store, experiment: str) -> dict[str, TrackedRun]:
    """Finished runs of an experiment by job name."""
    if not store.exists:
        return {}
    settle(store)
    runs = search(store, experiment=experiment)
    return {run.tags[JOB_TAG]: run for run in runs if run.status == "FINISHED" and JOB_TAG in run.tags}
