"""Normalisation head by head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HeadNorm(nn.Module):
    """Each head's mean 0 and variance 1, then scale and shift, channel by channel: group normalisation (Wu & He 2018)
    of one position, with a group a head.

    Args:
        bias: whether it shifts.
    """

    def __init__(self, num_heads: int, head_dim: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(num_heads, head_dim))
        self.bias = nn.Parameter(torch.zeros(num_heads, head_dim)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., H, V) to (..., H, V)."""
        scaled = F.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight
        return scaled if self.bias is None else scaled + self.bias
