"""The average of a window (Mikolov et al. 2013, "Efficient Estimation of Word Representations in Vector Space")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import POSITION, Spec, State
from seqlab.recurrence.window import Window


class CBOW(Window):
    """out_proj of the mean of the last inputs: the continuous bag of words (Mikolov et al. 2013, section 3.1), here of
    the past alone. Where there are fewer inputs than the window holds, it is their mean.

    The state is `position (B,)`, how many inputs there were, and `inputs (B, window - 1, D)`.

    Args:
        window: how many inputs are averaged, with the current one, at least 2 (ValueError).
    """

    def __init__(self, d_model: int, layer: int = 0, *, window: int = 4) -> None:
        super().__init__(d_model, layer, reach=window - 1)
        self.out_proj = nn.Linear(d_model, d_model)

    def mix(self, history: Tensor) -> Tensor:
        return F.avg_pool1d(history.transpose(1, 2), self.reach + 1, stride=1).transpose(1, 2)

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        mean, new_state = super().run(x, state, length)
        start = state["position"]
        held = (start.unsqueeze(1) + torch.arange(1, x.shape[1] + 1, device=x.device)).clamp(max=self.reach + 1)
        y = self.out_proj(mean * ((self.reach + 1) / held.to(mean.dtype)).unsqueeze(-1))
        return y, {"position": start + (x.shape[1] if length is None else length), **new_state}

    def state_spec(self) -> Spec:
        return POSITION, *super().state_spec()
