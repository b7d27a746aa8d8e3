"""Gated recurrent unit (Cho et al. 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.nn.scan import Carry
from seqlab.recurrence.fused import FusedRecurrence, Weights


class GRU(FusedRecurrence):
    """PyTorch's GRU layer, in which the reset gate acts after the recurrent product.

    r = sigmoid(W_r x + b_r + U_r h + c_r); z likewise; n = tanh(W_n x + b_n + r * (U_n h + c_n));
    h' = (1 - z) * n + z * h. The state is `h (B, num_layers, D)`; bidirectional, it has none.

    Args:
        num_layers: stacked inside the mixer.
        dropout: between those, in training.
        bidirectional: both ways, half of d_model each: not causal.
        looped: a Python loop in the fused kernel's place, to measure it against.
    """

    state_names = ("h",)

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        looped: bool = False,
    ) -> None:
        super().__init__(
            d_model,
            layer,
            nn.GRU,
            num_layers=num_layers,
            dropout=dropout,
            bidirectional=bidirectional,
            looped=looped,
        )

    def cell_step(self, x_t: Tensor, carry: Carry, weights: Weights) -> Carry:
        return (torch.gru_cell(x_t, carry[0], *weights),)
