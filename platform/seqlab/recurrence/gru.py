"""Gated recurrent unit (Cho et al. 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.mixer import State
from seqlab.recurrence.base import FusedRecurrence


class GRU(FusedRecurrence):
    """PyTorch's GRU layer, in which the reset gate acts after the recurrent product.

    r = sigmoid(W_r x + b_r + U_r h + c_r); z likewise; n = tanh(W_n x + b_n + r * (U_n h + c_n));
    h' = (1 - z) * n + z * h. The state is `h (B, D)`.
    """

    state_names = ("h",)

    def __init__(self, d_model: int, layer: int = 0) -> None:
        super().__init__(d_model, layer)
        self.cell = nn.GRU(d_model, d_model, batch_first=True)

    def cell_step(self, x_t: Tensor, state: State) -> State:
        return {"h": torch.gru_cell(x_t, state["h"], *self._weights())}
