"""Retention: linear attention with a fixed decay per head (Sun et al. 2023, "RetNet").

B batch, T length, D d_model, H heads, K head_dim, V value width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily
from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import matrix_recurrence
from seqlab.nn.norm import HeadNorm
from seqlab.nn.updates import Updates


class Retention(LinearFamily):
    """Multi-scale retention, Sun et al. 2023, equations 6 and 8: S_t = gamma_h S_{t-1} + k_t v_t^T and
    o_t = S_t^T q_t / sqrt(K) with gamma_h = 1 - 2^(-5-h) for head h = 0, 1, ...; then group norm over each head,
    and y = W_o (swish(W_g x) * norm(o)).

    The paper's rotation of queries and keys (xPos) is omitted, since the decay already encodes distance. The state is
    documented in `LinearFamily`.

    Args:
        num_heads: number of heads; must divide d_model.
        expand: ratio V / K of value width to key width; 2 in the paper.
        conv_width: kernel width of a short convolution over queries, keys and values; None = no convolution.

    Raises:
        ValueError: num_heads does not divide d_model.
    """

    decay_gap: Tensor

    def __init__(
        self, d_model: int, layer: int = 0, *, num_heads: int = 4, expand: int = 2, conv_width: int | None = None
    ) -> None:
        check_heads(num_heads, d_model)
        width = d_model // num_heads
        super().__init__(
            d_model, layer, num_heads=num_heads, head_dim=width, value_dim=expand * width, conv_width=conv_width
        )
        value_width = expand * d_model
        self.gate_proj = nn.Linear(d_model, value_width, bias=False)
        self.head_norm = HeadNorm(num_heads, self.value_dim)
        self.out_proj = nn.Linear(value_width, d_model, bias=False)
        # 1 - gamma is a power of two, hence exact in every dtype.
        gap = 2.0 ** -(5.0 + torch.arange(num_heads))
        self.register_buffer("decay_gap", gap.unsqueeze(-1), persistent=False)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # q and k (B, T, H, K), v (B, T, H, V)
        log_decay = torch.log1p(-self.decay_gap).expand(*x.shape[:2], -1, -1)  # (B, T, H, 1)
        updates = Updates(q * self.head_dim**-0.5, k, v, log_decay)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, V), s (B, H, K, V)
        heads = self.head_norm(o.to(x.dtype)).flatten(2)  # (B, T, H V)
        return self.out_proj(F.silu(self.gate_proj(x)) * heads), conv_state | {"s": s}  # y (B, T, D)
