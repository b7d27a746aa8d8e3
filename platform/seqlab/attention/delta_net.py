"""The delta rule: a write replaces the value stored under its key (Yang et al. 2024).

B batch, T length, D d_model, H heads, K head_dim, W convolution width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily, unit
from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.norm import RMSNorm
from seqlab.nn.updates import Updates


class DeltaNet(LinearFamily):
    """Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule", sections 2.2 and 3.3:
    S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T and o_t = S_t^T q_t / sqrt(K), with q_t and k_t the unit vectors
    along swish(conv(W x)), v_t = swish(conv(W x)) and beta_t = sigmoid(W x); then y = W_o norm(o), with an RMS norm
    per head.

    The state is documented in `LinearFamily`.

    Args:
        num_heads: number of heads; must divide d_model.
        conv_width: kernel width W; None = no convolution, and no swish of queries, keys and values either.
        negative_eigenvalues: whether beta ranges up to 2, so that a write can negate the stored value (Grazzi et al.
            2024).

    Raises:
        ValueError: num_heads does not divide d_model.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        conv_width: int | None = 4,
        negative_eigenvalues: bool = False,
    ) -> None:
        check_heads(num_heads, d_model)
        width = d_model // num_heads
        super().__init__(d_model, layer, num_heads=num_heads, head_dim=width, value_dim=width, conv_width=conv_width)
        self.beta_scale = 2.0 if negative_eigenvalues else 1.0
        self.beta_proj = nn.Linear(d_model, num_heads, bias=False)
        self.head_norm = RMSNorm(self.head_dim, eps=1e-5)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.columns, writers=1)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # q, k and v (B, T, H, K)
        q, k = unit(q), unit(k)
        beta = self.beta_scale * self.beta_proj(x).sigmoid().unsqueeze(-1)  # (B, T, H, 1)
        updates = Updates(q * self.head_dim**-0.5, k, v, torch.zeros_like(beta), beta)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, K), s (B, H, K, K)
        return self.out_proj(self.head_norm(o.to(x.dtype)).flatten(2)), conv_state | {"s": s}  # y (B, T, D)
