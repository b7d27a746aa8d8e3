"""Additional content of a bundle's page, from its run in this machine's store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.tracking.runs import TrackedRun
    from seqlab_export.page.html import Shown

CURVES = ("train/loss", "val/loss")
MOST_POINTS = 200


def shown(bundle: Path, *, trust: Sequence[str] = ()) -> Shown:
    """A bundle with the name, data, loss curves and images of its run, if the run and its data are on this machine."""
    from seqlab.tracking.writes import DATASET_TAG
    from seqlab.trained.load import load_run
    from seqlab_export.page.html import Shown
    from seqlab_export.runner.manifest import load_manifest

    manifest = load_manifest(bundle)
    run = stored_run(manifest.provenance.run_id)
    if run is None:
        return Shown(bundle.resolve().name, bundle)
    images = None
    if manifest.encoder is not None and manifest.encoder.inputs[0].name == "features":
        with contextlib.suppress(ValueError, OSError):
            images = getattr(load_run(run.id, trust=trust).datamodule, "reading", None)
    data = run.tags.get(DATASET_TAG)
    about = {"name": run.name, "experiment": run.experiment, "data": data, "curves": _curves(run)}
    return Shown(run.name, bundle, about, images)


def stored_run(run_id: str | None) -> TrackedRun | None:
    """Run with this id; None if it is not in this store."""
    from seqlab.tracking.runs import find_run
    from seqlab.tracking.store import Store

    if run_id and Store().exists:
        with contextlib.suppress(ValueError):
            return find_run(run_id)
    return None


def _curves(run: TrackedRun) -> list[dict[str, Any]]:
    histories = {name: run.history(name) for name in CURVES}
    thin = {name: points[:: 1 + len(points) // MOST_POINTS] for name, points in histories.items() if points}
    return [{"name": name, "points": points} for name, points in thin.items()]
