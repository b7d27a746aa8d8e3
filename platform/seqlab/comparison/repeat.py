"""Command that repeats the fit of a run."""

from __future__ import annotations

import os
import shlex

from seqlab.tracking.runs import TrackedRun

FROM_THE_BEGINNING = ("ckpt_path", "resume")
"""Options that would continue a fit instead of repeating it."""


def command(run: TrackedRun) -> str | None:
    """Command that repeats a run's fit as a new run, to be run in the original working folder; None if the run has no
    stored config."""
    path = run.artifact("config.yaml")
    if path is None:
        return None
    fresh = [f"--{name}=null" for name in FROM_THE_BEGINNING if run.config.get(name) is not None]
    name = ["--run_name", f"{run.name}-again"]
    return shlex.join(["seqlab", "fit", "--config", os.path.relpath(path), *name, *fresh])
