"""A limit at its edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from seqlab.tracking.bounded_answers import OutOfBoundsError
from seqlab.tracking.store import UnreachableError
from seqlab_export.runner.manifest import BundleError


class Edge(NamedTuple):
    """A limit, with what reads a value, the last one accepted, the first one refused, and what is said of it."""

    reads: Callable[[Any], object]
    accepted: Any
    refused: Any
    said: str

    def check(self) -> None:
        self.reads(self.accepted)
        with pytest.raises((ValueError, BundleError, OutOfBoundsError, UnreachableError), match=self.said):
            self.reads(self.refused)
