"""No positions at all: what order a model knows, it knows from its mixer."""

from __future__ import annotations

from seqlab.positions.base import PositionalEncoding


class NoPositions(PositionalEncoding):
    """Leaves the model as it is (Kazemnejad et al. 2023, "NoPE"). No parameters, no limit."""

    relative = True
