"""Normalisation layers, including per-head normalisation. A model's norm is a factory called with d_model."""

from __future__ import annotations

from abc import ABC

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Norm(nn.Module, ABC):
    """Normalises the last dimension: (..., D) to (..., D)."""


class LayerNorm(nn.LayerNorm, Norm):
    """Mean 0 and variance 1, then scale and shift (Ba et al. 2016)."""

    def __init__(self, d_model: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__(d_model, eps=eps, bias=bias)


class RMSNorm(nn.RMSNorm, Norm):
    """Root mean square 1, then scale (Zhang & Sennrich 2019)."""

    def __init__(self, d_model: int, *, eps: float = 1e-6) -> None:
        super().__init__(d_model, eps=eps)


class HeadNorm(nn.Module):
    """Mean 0 and variance 1 per head, then scale and shift per channel: group normalisation (Wu & He 2018) at each
    position, with one group per head.

    Args:
        bias: whether there is a learned shift.
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
