"""Ways to join a branch to the residual stream. A block's residual is a factory called with d_model."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Residual(nn.Module, ABC):
    """Joins the stream x and a branch's output y, both (..., D)."""

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor) -> Tensor: ...


class Sum(Residual):
    """x + scale y (He et al. 2016).

    Args:
        scale: factor on the branch; 1 in most models, 1/sqrt(2 num_layers) to preserve variance in a deep stack.
    """

    def __init__(self, d_model: int, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if self.scale == 1.0 else x + self.scale * y


class LayerScale(Residual):
    """x + gain * y with a learned gain per channel (Touvron et al. 2021, "CaiT", section 2.2).

    Args:
        initial: initial value of every gain.
    """

    def __init__(self, d_model: int, *, initial: float = 0.1) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((d_model,), initial))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.gain * y


class NoResidual(Residual):
    """y alone: no residual connection."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return y


class StochasticDepth(nn.Module):
    """Zeros a whole row of y (B, ..., D) with probability p in training, and rescales the rest (Huang et al. 2016).

    Args:
        p: drop probability, in [0, 1).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"stochastic_depth must be in [0, 1), got {p}")
        self.p = p

    def forward(self, y: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return y
        kept = torch.rand(y.shape[0], *[1] * (y.dim() - 1), dtype=torch.float32, device=y.device) >= self.p
        return y * kept / (1 - self.p)
