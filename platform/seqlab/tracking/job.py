"""A job is what torchrun, a batch queue or a loop in a shell starts again until it is done: its name, and its run."""

from __future__ import annotations

import os
from contextlib import suppress

from seqlab.tracking.journal import replay_all
from seqlab.tracking.provenance import host_id
from seqlab.tracking.runs import TrackedRun, condition, listed, search, settle
from seqlab.tracking.store import Store, UnreachableError

JOB_TAG = "job"
LAUNCHERS = {"TORCHELASTIC_RUN_ID": "torchrun", "SLURM_JOB_ID": "slurm"}
"""The environment's name for a job's id, and what gives it."""
NO_ID = ("", "none")
"""`none` is what torchrun says without `--rdzv-id`."""
WAIT = 60.0
"""Seconds that a rank waits for another one that sends what the last life of the job kept."""


def job_of(run_name: str | None) -> str | None:
    """The job of this process: its run's name, or who started it and that one's id; None where nothing tells."""
    if run_name:
        return run_name
    ids = {by: os.environ.get(name, "") for name, by in LAUNCHERS.items()}
    return next((f"{by} {value}" for by, value in ids.items() if value not in NO_ID), None)


def run_of_job(
    run_name: str | None, experiment: str, config_hash: str, store: Store | None = None
) -> TrackedRun | None:
    """The run that a job has in an experiment; None before it has one.

    A job by name is one run. One by an id may be a script of several fits: each goes by its config too.

    Every rank asks, and all before the first writes anything, which it does when all have met: they are told the same.

    Raises:
        ValueError: nothing names the job, several runs have its name, or its run is being trained on this host.
        UnreachableError: the server does not answer.
    """
    job, store = job_of(run_name), store or Store()
    if job is None:
        raise ValueError(
            "--resume auto knows a job by --run_name, TORCHELASTIC_RUN_ID (torchrun --rdzv-id) or SLURM_JOB_ID, and "
            "there is none of them; give a --run_name that no other run of the experiment has"
        )
    with suppress(UnreachableError):
        replay_all(store, wait=WAIT)  # of a life that ended before there was a store
    if not store.exists:
        return None
    settle(store)
    runs = search(store, condition(f"tags.{JOB_TAG}", job), experiment)
    if not run_name:
        runs = [run for run in runs if run.tags.get("config_hash", config_hash) == config_hash]
    if len(runs) > 1:
        raise ValueError(
            f"--resume auto: {job!r} is more than one run: {listed(runs)}; give another --run_name, or continue one "
            "by seqlab resume and its id"
        )
    for run in runs:
        if run.status == "RUNNING" and run.tags.get("host.id") == host_id():
            process = run.tags.get("process.id")
            raise ValueError(
                f"--resume auto: run {run.name} ({run.id[:8]}) is being trained, by process {process} here"
            )
    return runs[0] if runs else None
