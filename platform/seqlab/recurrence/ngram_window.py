"""The neural n-gram (Bengio et al. 2003, "A Neural Probabilistic Language Model")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.recurrence.window import Window


class NGramWindow(Window):
    """U tanh(d + H (x_{t-n+1}, ..., x_t)) + b of the concatenated last n inputs (Bengio et al. 2003, equation 1 without
    its direct connections W). Before the first input there are zeros.

    The state is `inputs (B, window - 1, D)`.

    Args:
        window: n, with the current input, at least 2 (ValueError).
        d_hidden: width of the tanh; None = d_model.
    """

    def __init__(self, d_model: int, layer: int = 0, *, window: int = 4, d_hidden: int | None = None) -> None:
        super().__init__(d_model, layer, reach=window - 1)
        d_hidden = d_model if d_hidden is None else d_hidden
        self.in_proj = nn.Linear(window * d_model, d_hidden)
        self.out_proj = nn.Linear(d_hidden, d_model)

    def mix(self, history: Tensor) -> Tensor:
        length = history.shape[1] - self.reach
        windows = torch.cat([history[:, k : k + length] for k in range(self.reach + 1)], dim=-1)
        y: Tensor = self.out_proj(torch.tanh(self.in_proj(windows)))
        return y
