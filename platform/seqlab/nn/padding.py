"""Padding: which tokens are real, where they stand, and rows turned so that they begin with these.

B batch, T length, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def count_real(pad_mask: Tensor | None, x: Tensor) -> Tensor:
    """(B,) int64: how many tokens of x (B, T, ...) are real."""
    if pad_mask is None:
        return torch.full((x.shape[0],), x.shape[1], dtype=torch.int64, device=x.device)
    return pad_mask.sum(dim=1)


def real_positions(start: Tensor | None, pad_mask: Tensor | None, x: Tensor) -> Tensor:
    """The position of each token of x (B, T, ...), counting real tokens only, from `start` (B,) or from 0.

    A pad has no position of its own, so a row that is full can have more of them: it repeats that of the real token
    before it, in this call or an earlier one, and 0 where there is none.

    Returns:
        (B, T) int64, or (1, T) where every row is the same.
    """
    if pad_mask is None:
        offsets = torch.arange(x.shape[1], device=x.device)[None, :]
        return offsets if start is None else start[:, None] + offsets
    last = pad_mask.cumsum(dim=1) - 1
    return (last if start is None else start[:, None] + last).clamp(min=0)


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


def is_real(x: Tensor, length: Tensor) -> Tensor:
    """(B, T, 1) bool: which of x (B, T, ...) are among the first `length` (B,) of their row."""
    return (torch.arange(x.shape[1], device=x.device) < length.unsqueeze(1)).unsqueeze(-1)


def identity_at_pads(a: Tensor, b: Tensor, length: Tensor | None) -> tuple[Tensor, Tensor]:
    """The factors and inputs (B, T, D) of h' = a h + b, 1 and 0 where a row has ended."""
    if length is None:
        return a, b
    real = is_real(b, length)
    return torch.where(real, a, 1.0), torch.where(real, b, 0.0)
