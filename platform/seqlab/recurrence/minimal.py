"""minGRU and minLSTM, whose gates depend on the input only, so that the state is a linear scan (Feng et al. 2024, "Were
RNNs All We Needed?").

B batch, T length, D d_model, N state.
"""

from __future__ import annotations

from abc import abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.padding import identity_at_pads
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.recurrence.linear_scan import linear_scan


class MinimalRNN(AlignedMixer):
    """h_t = a_t * h_{t-1} + b_t with a_t and b_t functions of x_t alone, projected down to d_model.

    The state is `h (B, expand D)`.

    Args:
        num_projections: number of projections of x_t, of the state's width, that a subclass needs.
        expand: width of the state in multiples of d_model (the paper's alpha).
    """

    def __init__(self, d_model: int, layer: int, *, num_projections: int, expand: int) -> None:
        super().__init__(d_model, layer)
        if expand < 1:
            raise ValueError(f"expand must be at least 1, got {expand}")
        self.d_state = expand * d_model
        self.in_proj = nn.Linear(d_model, num_projections * self.d_state)
        self.out_proj = nn.Linear(self.d_state, d_model)

    @abstractmethod
    def coefficients(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """Factors and inputs (..., N) from the projected input (..., num_projections N)."""

    def flops(self, new: int, seen: int) -> int:
        return 0

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        start = state["h"]
        a, b = identity_at_pads(*self.coefficients(self.in_proj(x).to(start.dtype)), length)  # (B, T, N) each
        h = linear_scan(a, b, start).to(start.dtype)  # (B, T, N)
        return self.out_proj(h), {"h": h[:, -1]}  # y (B, T, D)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        a, b = self.coefficients(self.in_proj(x_t).to(state["h"].dtype))  # (B, N) each
        h = a * state["h"] + b
        return self.out_proj(h), {"h": h}  # y (B, D)

    def state_spec(self) -> StateSpec:
        return (StateEntry("h", (self.d_state,)),)


class MinGRU(MinimalRNN):
    """z_t = sigmoid(W_z x_t); h_t = (1 - z_t) * h_{t-1} + z_t * (W_h x_t), projected (Feng et al. 2024, "Were RNNs All
    We Needed?", section 3.1.3).

    The state is `h (B, expand D)`.

    Args:
        expand: the state's width in multiples of d_model, at least 1 (ValueError).
    """

    def __init__(self, d_model: int, layer: int = 0, *, expand: int = 1) -> None:
        super().__init__(d_model, layer, num_projections=2, expand=expand)

    def coefficients(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        z, candidate = projected.chunk(2, dim=-1)  # (..., N) each
        # sigmoid(-z) is 1 - sigmoid(z) without its rounding near 1.
        return (-z).sigmoid(), z.sigmoid() * candidate


class MinLSTM(MinimalRNN):
    """f, i = sigmoid(W_f x_t), sigmoid(W_i x_t); h_t = f/(f + i) * h_{t-1} + i/(f + i) * (W_h x_t), projected (Feng et
    al. 2024, "Were RNNs All We Needed?", section 3.2.3).

    The state is `h (B, expand D)`.

    Args:
        expand: the state's width in multiples of d_model, at least 1 (ValueError).
    """

    def __init__(self, d_model: int, layer: int = 0, *, expand: int = 1) -> None:
        super().__init__(d_model, layer, num_projections=3, expand=expand)

    def coefficients(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        f, i, candidate = projected.chunk(3, dim=-1)  # (..., N) each
        # log i - log f, whose sigmoids give both normalised gates without a division (appendix B.2 of the paper).
        log_ratio = F.softplus(-f) - F.softplus(-i)
        return (-log_ratio).sigmoid(), log_ratio.sigmoid() * candidate
