"""Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.positions.constant import Angles, geometric
from seqlab.positions.embedded import Combine, EmbeddedEncoding


class Sinusoidal(EmbeddedEncoding):
    """Tells sin(p / 10000^(2i/D)) in channel 2i and the cosine in channel 2i + 1. No limit.

    Args:
        base: wavelengths run from 2 pi to base * 2 pi.
        combine: "add" as in the paper, or "concatenate".
    """

    def __init__(self, d_model: int, max_seq_len: int, *, base: float = 10000.0, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len, width=d_model, combine=combine)
        if d_model % 2:
            raise ValueError(f"Sinusoidal needs an even d_model, got {d_model}")
        self.angles = Angles(geometric(base, d_model))

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        angle = self.angles(positions, dtype)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
