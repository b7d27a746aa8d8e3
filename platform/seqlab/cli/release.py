"""What happens to an exported bundle: it is registered, promoted, and laid out for a server.

Each function imports what it needs when it runs. A verb takes its parsed options and returns the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.tracking.registry import Version
    from seqlab.tracking.runs import TrackedRun


def log_bundle(bundle: Path, run_id: str | None, report: dict[str, Any], *, provider: Any) -> Version | None:
    """Logs a bundle to its run as a version of the run's model, where the run is in this store.

    What the store cannot do is a warning: the bundle is there.

    Args:
        report: that of the bundle's verification.
        provider: what it is to be served with.
    """
    from mlflow.exceptions import MlflowException

    from seqlab.tracking.registry import register
    from seqlab_export.runner.manifest import load_manifest
    from seqlab_export.serving.mlflow_model import save_model

    manifest, save = load_manifest(bundle), partial(save_model, bundle, report=report, provider=provider)
    try:
        run = _stored_run(run_id)
        return None if run is None else register(run, manifest.precision, manifest.target, save)
    except (OSError, MlflowException) as error:
        print(f"seqlab: the bundle is written, but is no version of its run's model: {error}", file=sys.stderr)
        return None


def _stored_run(run_id: str | None) -> TrackedRun | None:
    from seqlab.tracking.runs import find_run
    from seqlab.tracking.store import Store

    if run_id and Store().exists:
        with contextlib.suppress(ValueError):
            return find_run(run_id)
    return None


def check_new(out: Path) -> None:
    """Raises ValueError where something is in the way of a new folder."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty folder; give a new one")


def write_repository(bundle: Path, out: Path, experiment: str, *, provider: Any) -> None:
    """Writes Triton's model repository of a bundle, its model named as the experiment's is in MLflow.

    Raises:
        ValueError: the bundle is not one of texts.
    """
    from seqlab.tracking.registry import model_name
    from seqlab_export.serving import triton

    out.parent.mkdir(parents=True, exist_ok=True)
    triton.write_repository(bundle, out, model_name(experiment), provider=provider)


def promote(options: argparse.Namespace) -> int:
    from seqlab.tracking import registry
    from seqlab.tracking.runs import find_run

    run = find_run(options.target)
    before, now = registry.promote(run)
    serve = shlex.join(["mlflow", "models", "serve", "-m", now.uri, "--env-manager", "local"])
    next_command = f"MLFLOW_TRACKING_URI={shlex.quote(run.store.uri)} {serve}"
    print(f"Champion of {now.model}: {now}; before: {before or 'none'} · next: {next_command}")
    return 0
