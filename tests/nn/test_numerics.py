"""Functions that lose no digits."""

from __future__ import annotations

import pytest
import torch

from seqlab.nn.numerics import expm1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_expm1_keeps_its_digits_near_0(dtype: torch.dtype) -> None:
    x = -torch.logspace(-30, 2, 200, dtype=dtype)
    assert ((expm1(x) / torch.expm1(x) - 1).abs() < 8 * torch.finfo(dtype).eps).all()
    assert expm1(torch.tensor([0.0, -1e9], dtype=dtype)).tolist() == [0, -1]
