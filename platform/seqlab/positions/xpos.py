"""Extrapolatable rotary positions (Sun et al. 2022, "A length-extrapolatable transformer").

B batch, T length, H heads, K head_dim.
"""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.constant import Angles, ConstantTensor, geometric
from seqlab.positions.rope import rotate_halves

LARGEST_EXPONENT = 60.0
"""Largest exponent of e in the scale of queries and keys; leaves headroom in float32 and bfloat16."""


class XPos(PositionalEncoding):
    """RoPE with queries times zeta^p and keys times zeta^-p, so that scores decay with the distance n - m by
    zeta^(n - m), channel by channel: zeta_i = ((2i/K + gamma) / (1 + gamma))^(1/scale_base) (equation 12, algorithm 1).

    Positions count from the middle of max_seq_len, which changes no score. Lengths at which a factor would leave
    e^-60..e^60 are rejected: with the defaults, lengths above max_seq_len // 2 + 24,500. In float16 the usable range is
    about a sixth of that. Meant for causal attention: scores of later keys grow with distance. No parameters.

    Args:
        base: base of the rotation frequencies.
        gamma: offset in the decay; a smaller gamma makes the first channels decay faster.
        scale_base: distance in tokens at which the first channels have decayed to gamma / (1 + gamma).
    """

    acts_on = "queries and keys"
    relative = True

    def __init__(
        self,
        d_model: int,
        max_seq_len: int,
        *,
        base: float = 10000.0,
        gamma: float = 0.4,
        scale_base: float = 512.0,
    ) -> None:
        super().__init__(d_model, max_seq_len)
        if gamma <= 0 or scale_base <= 0:
            raise ValueError(f"XPos needs a positive gamma and scale_base, got {gamma} and {scale_base}")
        self.base = base
        self.gamma = gamma
        self.scale_base = scale_base
        self.middle = max_seq_len // 2
        self.max_seq_len: int = self.middle + int(LARGEST_EXPONENT / -self._log_zeta(0.0))
        self.angles = nn.ModuleDict()
        self.log_zeta = nn.ModuleDict()

    def attach(self, num_heads: int, head_dim: int) -> None:
        if head_dim % 2:
            raise ValueError(f"XPos rotates pairs of channels, so head_dim must be even, got {head_dim}")
        self.angles[str(head_dim)] = Angles(geometric(self.base, head_dim))
        self.log_zeta[str(head_dim)] = ConstantTensor([self._log_zeta(2 * i / head_dim) for i in range(head_dim // 2)])

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Raises ValueError past max_seq_len (compiled or on a GPU, only if a single call is too long by itself)."""
        self.check_length(positions)
        size = str(q.shape[-1])
        angle = self.angles[size](positions, q.dtype).unsqueeze(1)  # (B or 1, 1, T, K/2)
        # (B or 1, 1, T, K/2) in float64, or the exponential of 60 would be off by 60 eps.
        exponent = (positions - self.middle)[:, None, :, None] * cast(ConstantTensor, self.log_zeta[size]).value
        cos, sin = angle.cos(), angle.sin()
        q_scale, k_scale = exponent.exp().to(angle.dtype), (-exponent).exp().to(angle.dtype)
        return (
            rotate_halves(q, (cos * q_scale).to(q.dtype), (sin * q_scale).to(q.dtype)),
            rotate_halves(k, (cos * k_scale).to(k.dtype), (sin * k_scale).to(k.dtype)),
        )

    def _log_zeta(self, channel: float) -> float:
        """Logarithm of zeta for a channel in 0..1."""
        return math.log((channel + self.gamma) / (1.0 + self.gamma)) / self.scale_base
