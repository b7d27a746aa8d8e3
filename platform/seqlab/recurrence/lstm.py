"""Long short-term memory (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.mixer import State
from seqlab.recurrence.base import FusedRecurrence


class LSTM(FusedRecurrence):
    """PyTorch's LSTM layer: c' = f * c + i * g, h' = o * tanh(c'), gates i, f, o sigmoid and g tanh of W x + U h.

    The state is `h (B, D)` and `c (B, D)`.
    """

    state_names = ("h", "c")

    def __init__(self, d_model: int, layer: int = 0) -> None:
        super().__init__(d_model, layer)
        self.cell = nn.LSTM(d_model, d_model, batch_first=True)

    def cell_step(self, x_t: Tensor, state: State) -> State:
        h, c = torch.lstm_cell(x_t, (state["h"], state["c"]), *self._weights())
        return {"h": h, "c": c}
