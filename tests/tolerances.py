"""The one table of tolerances: how far two computations of one thing may lie apart.

An error is that of `seqlab.laws.error`: the largest difference, relative to the largest expected value or to 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.laws import LIMIT, error

TOLERANCE = {
    torch.float64: LIMIT,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}

# Wider ones, each with its reason.
FLOAT32_ANGLES = 2e-6  # in float64: transformers takes the angles of its rotary embedding in float32
FLOAT32_SOFTMAX = 1e-6  # in float64: transformers' Bloom takes slopes and softmax in float32
BFLOAT16_FIRST_READINGS = 6e-2  # a head's norm divides by its first readings, which may nearly cancel; later 2e-2
BFLOAT16_FORGETFUL = 8e-2  # a norm of 8 channels divides by readings of a matrix that forgets; without it 1.4e-2
BFLOAT16_MAMBA2 = 6e-2  # gate, value, key and query are multiplied, each rounded; with in_proj in float32 it is 1.4e-2


def assert_close(actual: Tensor, expected: Tensor, what: str = "", *, tolerance: float | None = None) -> None:
    """Fails where `actual` differs from `expected` by more than the tolerance of its own dtype."""
    tolerance = TOLERANCE[actual.dtype] if tolerance is None else tolerance
    found = error(actual, expected)
    assert found <= tolerance, f"{what or 'the result'} is off by {found:.1e}, the tolerance is {tolerance:.0e}"
