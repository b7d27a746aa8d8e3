"""The vanilla recurrent network (Elman 1990), with optional identity initialisation (Le et al. 2015)."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from seqlab.nn.scan import Carry
from seqlab.recurrence.fused import FusedRecurrence, Weights


class RNN(FusedRecurrence):
    """h' = tanh(W x + b + U h + c), or relu. The state is `h (B, num_layers, D)`; a bidirectional RNN has none.

    Args:
        nonlinearity: "tanh" or "relu" (ValueError).
        identity_init: whether to initialise U to the identity, b and c to zero; with relu, the IRNN (Le, Jaitly &
            Hinton 2015).
        num_layers: number of layers stacked inside the mixer.
        dropout: dropout probability between these layers, in training.
        bidirectional: whether to run in both directions with width d_model / 2 each; then it is not causal.
        looped: whether to use a Python loop instead of the fused kernel, as a baseline for benchmarks.
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
