"""Bundles in MLflow and in Triton."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("seqlab", "seqlab_data", "seqlab_export")


def source_folders() -> list[Path]:
    """Folders of the code that runs a bundle, for a server without seqlab: one for each of `PACKAGES`."""
    specs = [find_spec(name) for name in PACKAGES]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
