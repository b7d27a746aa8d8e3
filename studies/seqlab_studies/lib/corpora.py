"""Location of the corpora used by studies, which the platform does not ship."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SEQLAB_CORPORA"
PAIRS = tuple(f"tatoeba-mini-en-de/{split}.tsv" for split in ("train", "valid", "test"))


def corpus(name: str) -> Path | None:
    """A file or folder in `$SEQLAB_CORPORA`, else in `corpora` in the working directory; None if it does not exist."""
    path = Path(os.environ.get(VARIABLE, "corpora")) / name
    return path.resolve() if path.exists() else None


def needed(*names: str) -> str:
    """Message that names the corpora missing for a claim; empty if all are available."""
    missing = [name for name in names if corpus(name) is None]
    return f"needs {' and '.join(missing)} in the folder that {VARIABLE} names, or in ./corpora" if missing else ""
