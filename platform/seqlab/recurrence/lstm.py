"""Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.nn.scan import Carry
from seqlab.recurrence.fused import FusedRecurrence, Weights


class LSTM(FusedRecurrence):
    """PyTorch's LSTM layer: c' = f * c + i * g, h' = o * tanh(c'), gates i, f, o sigmoid and g tanh of W x + U h.

    The state is `h (B, num_layers, D)` and `c (B, num_layers, D)`; a bidirectional LSTM has none.

    Args:
        forget_bias: initial bias of the forget gate; 1 remembers from the start (Jozefowicz et al. 2015). None =
            PyTorch's uniform initialisation around 0.
        num_layers: number of layers stacked inside the mixer.
        dropout: dropout probability between these layers, in training.
        bidirectional: whether to run in both directions with width d_model / 2 each; then it is not causal.
        looped: whether to use a Python loop instead of the fused kernel, as a baseline for benchmarks.
    """

    state_names = ("h", "c")

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        forget_bias: float | None = None,
        num_layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        looped: bool = False,
    ) -> None:
        super().__init__(
            d_model,
            layer,
            nn.LSTM,
            num_layers=num_layers,
            dropout=dropout,
            bidirectional=bidirectional,
            looped=looped,
        )
        if forget_bias is not None:
            for name, parameter in self.cell.named_parameters():
                if "bias" in name:  # PyTorch adds two biases
                    forget = parameter.detach().chunk(4)[1]
                    forget.fill_(forget_bias if "bias_ih" in name else 0.0)

    def cell_step(self, x_t: Tensor, carry: Carry, weights: Weights) -> Carry:
        return torch.lstm_cell(x_t, carry, *weights)
