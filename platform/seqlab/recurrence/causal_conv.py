"""A causal convolution (Bai et al. 2018, "An Empirical Evaluation of Generic Convolutional and Recurrent Networks for
Sequence Modeling")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.recurrence.window import Window


class CausalConv(Window):
    """out_proj(relu(b + sum_k W_k x_{t - d k})), k = 0 .. width - 1: the dilated causal convolution of a TCN (Bai et
    al. 2018, section 3.2). In layer i the dilation d is dilation_growth^i.

    The state is `inputs (B, (width - 1) d, D)`.

    Args:
        width: taps of the kernel, at least 2 (ValueError).
        dilation_growth: at least 1 (ValueError); 2 doubles the dilation layer by layer, as a TCN or WaveNet does.
    """

    def __init__(self, d_model: int, layer: int = 0, *, width: int = 4, dilation_growth: int = 1) -> None:
        if dilation_growth < 1:
            raise ValueError(f"dilation_growth must be at least 1, got {dilation_growth}")
        dilation = dilation_growth**layer
        super().__init__(d_model, layer, reach=(width - 1) * dilation)
        self.conv = nn.Conv1d(d_model, d_model, width, dilation=dilation)
        self.out_proj = nn.Linear(d_model, d_model)

    def mix(self, history: Tensor) -> Tensor:
        y: Tensor = self.out_proj(torch.relu(self.conv(history.transpose(1, 2)).transpose(1, 2)))
        return y
