"""Command that fits a run again."""

from __future__ import annotations

import os
import shlex

from seqlab.tracking.runs import TrackedRun

FROM_THE_BEGINNING = ("ckpt_path", "resume")
"""Options that make a fit go on instead."""


def command(run: TrackedRun) -> str | None:
    """The command that fits a run from the beginning as a new run beside it, in the folder where it was begun; None
    where it has no config."""
    path = run.artifact("config.yaml")
    if path is None:
        return None
    fresh = [f"--{name}=null" for name in FROM_THE_BEGINNING if run.config.get(name) is not None]
    name = ["--run_name", f"{run.name}-again"]
    return shlex.join(["seqlab", "fit", "--config", os.path.relpath(path), *name, *fresh])
