"""Gated linear attention: each key channel has its own data-dependent decay (Yang et al. 2023).

B batch, T length, D d_model, H heads, K head_dim, V value width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily
from seqlab.mixer import State
from seqlab.nn.heads import check_heads
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.norm import RMSNorm
from seqlab.nn.numerics import logsigmoid
from seqlab.nn.updates import Updates


class GatedLinearAttention(LinearFamily):
    """Yang et al. 2023, "Gated Linear Attention", section 4.4: S_t = diag(alpha_t) S_{t-1} + k_t v_t^T and
    o_t = S_t^T q_t / sqrt(K) with alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16); then y = W_o (swish(W_g x) * norm(o)),
    with an RMS norm per head, as in the authors' code.

    The state is documented in `LinearFamily`.

    Args:
        num_heads: number of heads; must divide d_model.
        head_dim: key width K; None = half of the value width V = d_model / num_heads, as in the paper.
        gate_rank: number of rows of W_1.
        conv_width: kernel width of a short convolution over queries, keys and values; None = no convolution.

    Raises:
        ValueError: num_heads does not divide d_model.
    """

    TEMPERATURE = 16.0

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        head_dim: int | None = None,
        gate_rank: int = 16,
        conv_width: int | None = None,
    ) -> None:
        check_heads(num_heads, d_model)
        value_dim = d_model // num_heads
        head_dim = max(1, value_dim // 2) if head_dim is None else head_dim
        super().__init__(
            d_model, layer, num_heads=num_heads, head_dim=head_dim, value_dim=value_dim, conv_width=conv_width
        )
        self.decay_down = nn.Linear(d_model, gate_rank, bias=False)
        self.decay_up = nn.Linear(gate_rank, num_heads * head_dim)
        self.gate_proj = nn.Linear(d_model, d_model, bias=False)
        self.head_norm = RMSNorm(self.value_dim, eps=1e-5)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.columns, triangular=True)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # q and k (B, T, H, K), v (B, T, H, V)
        log_decay = logsigmoid(self.decay_up(self.decay_down(x))) / self.TEMPERATURE  # (B, T, H K)
        log_decay = torch.unflatten(log_decay, -1, (self.num_heads, -1))  # (B, T, H, K)
        updates = Updates(q * self.head_dim**-0.5, k, v, log_decay)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, V), s (B, H, K, V)
        heads = self.head_norm(o.to(x.dtype)).flatten(2)  # (B, T, H V)
        return self.out_proj(F.silu(self.gate_proj(x)) * heads), conv_state | {"s": s}  # y (B, T, D)
