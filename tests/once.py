"""Values that several pytest workers need, and one of them makes."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from filelock import FileLock

Made = TypeVar("Made")


def once(name: str, make: Callable[[Path], Made], factory: pytest.TempPathFactory) -> Made:
    """The result of `make` for a new folder that it fills: the first worker calls it, the others read the result."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = base / f"{name}.pickle"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            made.write_bytes(pickle.dumps(make(Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base)))))
    found: Any = pickle.loads(made.read_bytes())
    return found
