"""The vanilla recurrent network (Elman 1990), and the one that begins as the identity (Le et al. 2015)."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from seqlab.nn.scan import Carry
from seqlab.recurrence.fused import FusedRecurrence, Weights


class RNN(FusedRecurrence):
    """h' = tanh(W x + b + U h + c), or relu. The state is `h (B, num_layers, D)`; bidirectional, it has none.

    Args:
        nonlinearity: "tanh" or "relu" (ValueError).
        identity_init: U begins as the identity, b and c as zeros: with relu, the IRNN (Le, Jaitly & Hinton 2015).
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
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        identity_init: bool = False,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        looped: bool = False,
    ) -> None:
        super().__init__(
            d_model,
            layer,
            partial(nn.RNN, nonlinearity=nonlinearity),
            num_layers=num_layers,
            dropout=dropout,
            bidirectional=bidirectional,
            looped=looped,
        )
        if identity_init:
            for name, parameter in self.cell.named_parameters():
                if "weight_hh" in name:
                    nn.init.eye_(parameter)
                elif "bias" in name:
                    nn.init.zeros_(parameter)

    def cell_step(self, x_t: Tensor, carry: Carry, weights: Weights) -> Carry:
        cell = torch.rnn_tanh_cell if self.cell.mode == "RNN_TANH" else torch.rnn_relu_cell
        return (cell(x_t, carry[0], *weights),)
