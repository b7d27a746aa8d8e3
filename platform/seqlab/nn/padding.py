"""Rows without their leading pads, for what looks back a fixed number of places.

B batch, T length.
"""

from __future__ import annotations

import torch
from torch import Tensor


def leading_pads(pad_mask: Tensor) -> Tensor:
    """(B,) int64: how many pads each row of pad_mask (B, T) begins with; T where it is all pads."""
    return (pad_mask.cumsum(dim=1) == 0).sum(dim=1)


def rotate_rows(x: Tensor, places: Tensor) -> Tensor:
    """x (B, T, ...) with row b rotated left by places[b], -T..T; a negative number rotates right.

    Rotated by its leading pads a row begins with its real tokens; rotated by minus as many it is as it was.
    """
    size = x.shape[1]
    source = torch.arange(size, device=x.device) + places.unsqueeze(1)
    source = torch.where(source < size, source, source - size)
    source = torch.where(source >= 0, source, source + size)
    return x.gather(1, source.view(*source.shape, *[1] * (x.dim() - 2)).expand_as(x))
