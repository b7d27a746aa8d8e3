"""Normalisation layers. A model's norm is a factory called with d_model."""

from __future__ import annotations

from abc import ABC

import torch.nn as nn


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
