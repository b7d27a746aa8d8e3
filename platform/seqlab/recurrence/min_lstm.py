"""The minimal LSTM (Feng et al. 2024, section 3.2)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from seqlab.recurrence.minimal import MinimalRNN


class MinLSTM(MinimalRNN):
    """f, i = sigmoid(W_f x_t), sigmoid(W_i x_t); h_t = f/(f + i) * h_{t-1} + i/(f + i) * (W_h x_t), projected (Feng et
    al. 2024, "Were RNNs All We Needed?", section 3.2.3).

    The state is `h (B, expand D)`.

    Args:
        expand: the state's width in multiples of d_model, at least 1 (ValueError).
    """

    def __init__(self, d_model: int, layer: int = 0, *, expand: int = 1) -> None:
        super().__init__(d_model, layer, num_projections=3, expand=expand)

    def coefficients(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        f, i, candidate = projected.chunk(3, dim=-1)
        # log i - log f, from which both shares are had without a division (appendix B.2 of the paper).
        log_ratio = F.softplus(-f) - F.softplus(-i)
        return (-log_ratio).sigmoid(), log_ratio.sigmoid() * candidate
