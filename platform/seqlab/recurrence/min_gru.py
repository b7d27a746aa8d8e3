"""The minimal GRU (Feng et al. 2024, section 3.1)."""

from __future__ import annotations

from torch import Tensor

from seqlab.recurrence.minimal import MinimalRNN


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
        z, candidate = projected.chunk(2, dim=-1)
        # sigmoid(-z) is 1 - sigmoid(z) without its rounding near 1.
        return (-z).sigmoid(), z.sigmoid() * candidate
