"""Rotary position embedding (Su et al. 2021, "RoFormer")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.constant import Angles, geometric


class RoPE(PositionalEncoding):
    """Rotates the channel pairs (i, i + K/2) of queries and keys by p * base^(-2i/K) (equation 34).

    Scores then depend on relative positions only. No parameters, no limit. The pairing by halves is GPT-NeoX's and
    Llama's; it is the paper's with the channels permuted.

    Args:
        base: wavelengths run from 2 pi to base * 2 pi.
    """

    acts_on = "queries and keys"
    relative = True

    def __init__(self, d_model: int, max_seq_len: int, *, base: float = 10000.0) -> None:
        super().__init__(d_model, max_seq_len)
        self.base = base
        self.angles = nn.ModuleDict()

    def attach(self, num_heads: int, head_dim: int) -> None:
        if head_dim % 2:
            raise ValueError(f"RoPE rotates pairs of channels, so head_dim must be even, got {head_dim}")
        self.angles[str(head_dim)] = Angles(geometric(self.base, head_dim))

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = self.angles[str(q.shape[-1])](positions, q.dtype).unsqueeze(1)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        return rotate_halves(q, cos, sin), rotate_halves(k, cos, sin)


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, H, T, K) with its channel pairs (i, i + K/2) rotated by cos and sin (B or 1, 1, T, K/2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
