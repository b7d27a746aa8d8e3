"""Files to read, refusals to expect, and files that a cache leaves."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqlab_data.token_cache import TokenCache

QUIET = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
]
"""Marks of tests that run Lightning's loops."""


def write(folder: Path, name: str, content: str | bytes) -> str:
    """The path of a file with this content, in a folder that is made."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def refused(message: str) -> AbstractContextManager[Any]:
    return pytest.raises(ValueError, match=message)


def left_in(root: Path) -> list[Path]:
    """The files in a folder of caches, but for locks."""
    return [path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"]


def stream(cache: TokenCache, split: str) -> list[int]:
    return np.fromfile(cache.splits[split].path, dtype=cache.splits[split].dtype).tolist()


def check_divided(contents: Mapping[str, Sequence[Hashable]]) -> None:
    """Each of 300 rows that stand twice is in one split, of which train, val and test have 0.6, 0.3 and 0.1."""
    of = {name: set(some) for name, some in contents.items()}
    assert sum(map(len, contents.values())) == 600 and sum(map(len, of.values())) == len(set.union(*of.values())) == 300
    assert all(abs(len(of[name]) - 300 * share) < 45 for name, share in (("train", 0.6), ("val", 0.3), ("test", 0.1)))
