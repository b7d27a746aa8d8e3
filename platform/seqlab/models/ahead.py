"""Heads that predict tokens after the next one.

D d_model, N heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HeadsAhead(nn.Module):
    """x + silu(W_k x) for head k (Cai et al. 2024, "Medusa", section 2.1.1); the model's output layer, which all heads
    share, maps this to the logits of the token k places after the next. W_k starts at zero.

    The heads read one position and have no state, so they fit any mixer.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model, bias=False) for _ in range(num_heads))

    def begin(self) -> None:
        """Sets each W_k to zero."""
        for layer in self.layers:
            nn.init.zeros_(layer.weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Features (..., D) to those of each head, (..., N, D)."""
        return torch.stack([x + F.silu(layer(x)) for layer in self.layers], dim=-2)
