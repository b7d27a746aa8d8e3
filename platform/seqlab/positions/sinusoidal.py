"""Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.positions.base import PositionalEncoding, angles


class Sinusoidal(PositionalEncoding):
    """Adds sin(p / 10000^(2i/D)) to channel 2i and the cosine to channel 2i + 1. No parameters, no limit.

    Args:
        base: wavelengths run from 2 pi to base * 2 pi.
    """

    def __init__(self, d_model: int, max_seq_len: int, *, base: float = 10000.0) -> None:
        super().__init__(d_model, max_seq_len)
        if d_model % 2:
            raise ValueError(f"Sinusoidal needs an even d_model, got {d_model}")
        self.base = base

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        angle = angles(positions, x.shape[-1], self.base, x.dtype)
        return x + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2).to(x.dtype)
