"""Fit of a run's config with another seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqlab.config.trust import check_trust
from seqlab.sweeps.several import Job
from seqlab.tracking.params import RUN_SPECIFIC, to_yaml
from seqlab.tracking.runs import TrackedRun


def another_seed(run: TrackedRun, name: str, seed: int, options: Sequence[str], *, trust: Sequence[str] = ()) -> Job:
    """Fit of a run's config with a seed. Its config is written beside the logs of the experiment's fits.

    Args:
        name: name of the fit.
        options: options of `seqlab fit` that are set to the seed.

    Raises:
        ValueError: the run has no config, or one that would import a module outside `trust`.
    """
    config = {key: value for key, value in run.config.items() if key not in RUN_SPECIFIC}
    check_trust(config, trust)
    file: Path = run.store.root / "fits" / run.experiment / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(to_yaml(config), encoding="utf-8")
    return Job(name, [f"--config={file}", *(f"--{option}={seed}" for option in options)])
