"""Rotary position embedding (Su et al. 2021, "RoFormer").

B batch, T length, H heads, K head_dim, W rotated channels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.constant import Angles
from seqlab.positions.rope_scaling import NoScaling, RotaryScaling


class RoPE(PositionalEncoding):
    """Rotates the channel pairs (i, i + W/2) of queries and keys by p * base^(-2i/W) (equation 34).

    Scores then depend on relative positions only. No parameters, no limit. The pairing by halves is GPT-NeoX's and
    Llama's; it is the paper's with the channels permuted.

    Args:
        base: base of the frequencies; wavelengths run from 2 pi to base * 2 pi tokens.
        fraction: fraction of the K channels that is rotated, in (0, 1], rounded down to an even W; channels after the
            first W are left unchanged (0.25 in GPT-NeoX).
        scaling: factory of the frequency scaling, for contexts longer than the training length.
    """

    acts_on = "queries and keys"
    relative = True

    def __init__(
        self,
        d_model: int,
        max_seq_len: int,
        *,
        base: float = 10000.0,
        fraction: float = 1.0,
        scaling: Callable[[], RotaryScaling] = NoScaling,
    ) -> None:
        super().__init__(d_model, max_seq_len)
        if not 0 < fraction <= 1:
            raise ValueError(f"the fraction of channels that RoPE rotates must be in (0, 1], got {fraction}")
        self.base = base
        self.fraction = fraction
        self.scaling = scaling()
        self.angles = nn.ModuleDict()

    def attach(self, num_heads: int, head_dim: int) -> None:
        if head_dim % 2:
            raise ValueError(f"RoPE rotates pairs of channels, so head_dim must be even, got {head_dim}")
        width = 2 * int(head_dim * self.fraction / 2 + 1e-6)
        if not width:
            raise ValueError(
                f"fraction {self.fraction} of head_dim {head_dim} leaves RoPE no pair of channels to rotate"
            )
        self.angles[str(head_dim)] = Angles(self.scaling.frequencies(self.base, width))

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self._cos_sin(q.shape[-1], positions.unsqueeze(1), q.dtype)  # (B or 1, 1, T, W/2) each
        return rotate_halves(q, cos, sin), rotate_halves(k, cos, sin)

    def rotation(self, head_dim: int, num_positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angles: Angles = self.angles[str(head_dim)]  # type: ignore[assignment]
        return self._cos_sin(head_dim, torch.arange(num_positions, device=angles.turn.value.device), dtype)

    def _cos_sin(self, head_dim: int, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        angle = self.angles[str(head_dim)](positions, dtype)  # (..., W/2)
        cos, sin = angle.cos(), angle.sin()
        if self.scaling.temperature != 1.0:
            cos, sin = cos * self.scaling.temperature, sin * self.scaling.temperature
        return cos.to(dtype), sin.to(dtype)


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, H, T, K) with its channel pairs (i, i + W/2), i < W/2, rotated by cos and sin (B or 1, 1, T, W/2)."""
    half = cos.shape[-1]
    # (B, H, T, W/2), (B, H, T, W/2), (B, H, T, K - W)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    rotated = (first * cos - second * sin, second * cos + first * sin)  # (B, H, T, W/2) each
    return torch.cat(rotated if not rest.shape[-1] else (*rotated, rest), dim=-1)  # (B, H, T, K)
