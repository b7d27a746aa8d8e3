"""Jobs, which torchrun, a batch queue or a shell loop restarts until done: their names and runs."""

from __future__ import annotations

import os
from contextlib import suppress

from seqlab.tracking.journal import replay_all
from seqlab.tracking.provenance import host_id
from seqlab.tracking.runs import TrackedRun, condition, listed, search, settle
from seqlab.tracking.store import Store, UnreachableError

JOB_TAG = "job"
LAUNCHERS = {"TORCHELASTIC_RUN_ID": "torchrun", "SLURM_JOB_ID": "slurm"}
"""Environment variable with the job id, and the launcher that sets it."""
NO_ID = ("", "none")
"""Values without an id; torchrun sets `none` without `--rdzv-id`."""
WAIT = 60.0
"""Seconds that a rank waits for another one to send writes left by the previous start of the job."""


def job_of(run_name: str | None) -> str | None:
    """Job of this process: the run name, or the launcher with the job id; None = unknown."""
    if run_name:
        return run_name
    ids = {by: os.environ.get(name, "") for name, by in LAUNCHERS.items()}
    return next((f"{by} {value}" for by, value in ids.items() if value not in NO_ID), None)


def run_of_job(
    run_name: str | None, experiment: str, config_hash: str, store: Store | None = None
) -> TrackedRun | None:
    """Run of a job in an experiment; None if it does not have one yet.

    A job identified by run name has one run. A job identified by id may run several fits, which are told apart by their
    config.

    Every rank calls this before rank 0 first writes, which happens after all ranks have met, so the results agree.

    Raises:
        ValueError: the job has no name or id, several runs match, or its run is being trained on this host.
        UnreachableError: the server does not answer.
    """
    job, store = job_of(run_name), store or Store()
    if job is None:
        raise ValueError(
            "--resume auto identifies a job by --run_name, TORCHELASTIC_RUN_ID (torchrun --rdzv-id) or "
            "SLURM_JOB_ID, and none is set; give a --run_name that no other run of the experiment has"
        )
    with suppress(UnreachableError):
        replay_all(store, wait=WAIT)  # from an earlier start that ended before the store existed
    if not store.exists:
        return None
    settle(store)
    runs = search(store, condition(f"tags.{JOB_TAG}", job), experiment)
    if not run_name:
        runs = [run for run in runs if run.tags.get("config_hash", config_hash) == config_hash]
    if len(runs) > 1:
        raise ValueError(
            f"--resume auto: {job!r} is more than one run: {listed(runs)}; give another --run_name, or continue one "
            "with seqlab resume and its id"
        )
    for run in runs:
        if run.status == "RUNNING" and run.tags.get("host.id") == host_id():
            process = run.tags.get("process.id")
            raise ValueError(
                f"--resume auto: run {run.name} ({run.id[:8]}) is being trained by process {process} on this machine"
            )
    return runs[0] if runs else None
