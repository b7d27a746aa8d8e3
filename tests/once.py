"""Values that several pytest workers need, and one of them makes."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from filelock import FileLock

Made = TypeVar("Made")
SEED = int(os.environ.get("SEQLAB_TEST_SEED", "0"))


def once(name: str, make: Callable[[Path], Made], factory: pytest.TempPathFactory) -> Made:
    """The result of `make` for a new folder that it fills: the first worker calls it, the others read the result.
    Its draws are the same whichever test comes first."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = base / f"{name}.pickle"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            with torch.random.fork_rng():
                torch.manual_seed(SEED)
                value = make(Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base)))
            made.write_bytes(pickle.dumps(value))
    found: Any = pickle.loads(made.read_bytes())
    return found
