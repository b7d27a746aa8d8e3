"""Alignment of a recurrent decoder's state with a memory: alignment scores, and a window around a predicted position.

B batch, T query length, S memory length, D d_model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from seqlab.nn.padding import real_positions


class AlignmentScore(nn.Module, ABC):
    """Alignment score of decoder states with memory positions, constructed as `Score(d_model)`."""

    def __init__(self, d_model: int) -> None:
        super().__init__()

    @abstractmethod
    def read(self, memory: Tensor) -> Tensor:
        """Preprocesses a memory (B, S, D) once for all decoder states; returns (B, S, D)."""

    def flops(self, new: int, seen: int, d_model: int) -> int:
        """FLOPs of the scores of one sequence, as in `Mixer.flops`; the default is the cost of inner products."""
        return 2 * new * seen * d_model

    @abstractmethod
    def forward(self, h: Tensor, read: Tensor) -> Tensor:
        """Scores (B, T, S) of decoder states h (B, T, D) against the output of `read`."""


class Additive(AlignmentScore):
    """v^T tanh(W s + U h_j) (Bahdanau et al. 2015, appendix A.1.2); Luong et al. 2015 (equation 8) write [W, U] as one
    matrix and call it "concat". v is initialised to 0, as in the former, so attention starts out uniform."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Parameter(torch.zeros(d_model))

    def read(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.k_proj(memory)
        return keys

    def flops(self, new: int, seen: int, d_model: int) -> int:
        return 0  # a product with one vector

    def forward(self, h: Tensor, read: Tensor) -> Tensor:
        return torch.tanh(self.q_proj(h).unsqueeze(2) + read.unsqueeze(1)) @ self.v  # (B, T, S, D) to (B, T, S)


class Dot(AlignmentScore):
    """h_t^T h_s (Luong et al. 2015, equation 8)."""

    def read(self, memory: Tensor) -> Tensor:
        # A copy, since state entries must not alias: each is a separate output of an exported graph.
        return memory.clone()

    def forward(self, h: Tensor, read: Tensor) -> Tensor:
        return h @ read.transpose(1, 2)  # (B, T, S)


class General(AlignmentScore):
    """h_t^T W h_s (Luong et al. 2015, equation 8)."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)

    def read(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.k_proj(memory)
        return keys

    def forward(self, h: Tensor, read: Tensor) -> Tensor:
        return h @ read.transpose(1, 2)  # (B, T, S)


class PredictedWindow(nn.Module):
    """Local attention with predictive alignment, "local-p" (Luong et al. 2015, section 3.2, equations 9 and 10).

    Only positions within `width` of p_t = S sigmoid(v^T tanh(W h_t)) are visible. Their weights are multiplied by
    exp(-(s - p_t)^2 / (2 sigma^2)), sigma = width / 2. S is the number of real tokens, at positions 0 .. S - 1.

    Args:
        width: half-width of the window, the paper's D, at least 1.
    """

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"the window of local attention must be at least 1, got {width}")
        self.width = width
        self.in_proj = nn.Linear(d_model, d_model, bias=False)
        self.v = nn.Parameter(torch.randn(d_model) * d_model**-0.5)

    def forward(self, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mask of visible positions and their Gaussian factors, (B, T, S) each, for h (B, T, D) and a memory's mask
        (B, S)."""
        predicted = torch.sigmoid(torch.tanh(self.in_proj(h)) @ self.v) * mask.sum(dim=1, keepdim=True)  # (B, T)
        distance = real_positions(None, mask, mask).unsqueeze(1) - predicted.unsqueeze(-1)  # (B, T, S)
        seen = mask.unsqueeze(1) & (distance.abs() <= self.width)  # (B, T, S)
        return seen, torch.exp(-2.0 * (distance / self.width) ** 2)
