"""Padding: counts and positions of real tokens, and rotation of rows so that they start with real tokens.

B batch, T length, D channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def count_real(pad_mask: Tensor | None, x: Tensor) -> Tensor:
    """Number of real tokens per row of x (B, T, ...), (B,) int64."""
    if pad_mask is None:
        return torch.full((x.shape[0],), x.shape[1], dtype=torch.int64, device=x.device)
    return pad_mask.sum(dim=1)


def real_positions(start: Tensor | None, pad_mask: Tensor | None, x: Tensor) -> Tensor:
    """Position of each token of x (B, T, ...), counting real tokens only, from `start` (B,) or from 0.

    A pad repeats the position of the last real token before it, in this call or an earlier one, or 0 if there is no
    such token. Padding therefore never exceeds a length limit that the real tokens respect.

    Returns:
        (B, T) int64, or (1, T) where every row is the same.
    """
    if pad_mask is None:
        offsets = torch.arange(x.shape[1], device=x.device)[None, :]
        return offsets if start is None else start[:, None] + offsets
    last = pad_mask.cumsum(dim=1) - 1  # (B, T)
    return (last if start is None else start[:, None] + last).clamp(min=0)


def leading_pads(pad_mask: Tensor) -> Tensor:
    """Number of leading pads per row of pad_mask (B, T), (B,) int64; T for a row of padding only."""
    return (pad_mask.cumsum(dim=1) == 0).sum(dim=1)


def rotate_rows(x: Tensor, places: Tensor) -> Tensor:
    """Rotates row b of x (B, T, ...) left by places[b], in -T..T; a negative number rotates right.

    Rotating a row by its number of leading pads moves its real tokens to the front; the negative number undoes this.
    """
    size = x.shape[1]
    source = torch.arange(size, device=x.device) + places.unsqueeze(1)  # (B, T)
    source = torch.where(source < size, source, source - size)
    source = torch.where(source >= 0, source, source + size)
    return x.gather(1, source.view(*source.shape, *[1] * (x.dim() - 2)).expand_as(x))


def is_real(x: Tensor, length: Tensor) -> Tensor:
    """Mask (B, T, 1) bool of the first `length` (B,) positions of each row of x (B, T, ...)."""
    return (torch.arange(x.shape[1], device=x.device) < length.unsqueeze(1)).unsqueeze(-1)


def identity_at_pads(a: Tensor, b: Tensor, length: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sets the factors a and inputs b (B, T, D) of h' = a h + b to 1 and 0 after the end of each row."""
    if length is None:
        return a, b
    real = is_real(b, length)
    return torch.where(real, a, 1.0), torch.where(real, b, 0.0)
