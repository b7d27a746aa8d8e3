"""The vanilla recurrent network (Elman 1990)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.mixer import State
from seqlab.recurrence.base import FusedRecurrence


class RNN(FusedRecurrence):
    """h' = tanh(W x + b + U h + c). The state is `h (B, D)`."""

    state_names = ("h",)

    def __init__(self, d_model: int, layer: int = 0) -> None:
        super().__init__(d_model, layer)
        self.cell = nn.RNN(d_model, d_model, batch_first=True)

    def cell_step(self, x_t: Tensor, state: State) -> State:
        return {"h": torch.rnn_tanh_cell(x_t, state["h"], *self._weights())}
