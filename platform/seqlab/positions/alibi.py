"""Attention with linear biases (Press et al. 2022, "Train short, test long").

B batch, T query length, S key length, H heads.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.constant import ConstantTensor


def alibi_slopes(num_heads: int) -> list[float]:
    """One slope per head: 2^(-8h/n), h = 1..n; if n is not a power of two, the paper's interleaving."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * (h + 1) / power) for h in range(power)]
    between = [2.0 ** (-4.0 * (h + 1) / power) for h in range(0, 2 * (num_heads - power), 2)]
    return slopes + between


class ALiBi(PositionalEncoding):
    """Subtracts slope * |q - k| from the score of each pair (section 3). No parameters, no limit."""

    acts_on = "attention scores"
    relative = True

    def __init__(self, d_model: int, max_seq_len: int) -> None:
        super().__init__(d_model, max_seq_len)
        self.slopes = nn.ModuleDict()

    def attach(self, num_heads: int, head_dim: int) -> None:
        self.slopes[str(num_heads)] = ConstantTensor(alibi_slopes(num_heads))

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor:
        constant = cast(ConstantTensor, self.slopes[str(q.shape[1])])
        slopes = constant.value.to(torch.promote_types(q.dtype, torch.float32))
        distance = (q_positions[:, None, :, None] - k_positions[:, None, None, :]).abs()  # (B or 1, 1, T, S)
        return (-slopes[:, None, None] * distance).to(q.dtype)  # (B or 1, H, T, S)
