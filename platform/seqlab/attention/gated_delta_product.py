"""Gated DeltaProduct: several delta-rule writes per token, whose transition is a product of Householder matrices (Siems
et al. 2025).

B batch, T length, D d_model, H heads, K head_dim, V value width, N writes per token, W convolution width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily, unit
from seqlab.mixer import State
from seqlab.nn.heads import head_width
from seqlab.nn.init import log_uniform_steps, uniform_rates
from seqlab.nn.matrix_recurrence import in_turn, recurrence_flops
from seqlab.nn.norm import RMSNorm
from seqlab.nn.updates import Updates


class GatedDeltaProduct(LinearFamily):
    """Gated delta rule with several writes per token.

    Siems et al. 2025, "DeltaProduct", equations 4 and 5: `GatedDeltaNet` with N writes per token, each with a key, a
    value and a strength of its own; the decay comes before the first write, and the query reads after the last one.

    The state is documented in `LinearFamily`, with `conv (B, W - 1, H (K + N (K + V)))`.

    Args:
        num_heads: number of heads H.
        head_dim: key width K; None = d_model / num_heads.
        expand: ratio V / K of value width to key width.
        writes: number of writes N per token. With `negative_eigenvalues` two make any rotation in a plane.
        conv_width: kernel width W; None = no convolution, and no swish of queries, keys and values either.
        negative_eigenvalues: whether a strength ranges up to 2, as in `GatedDeltaNet`.

    Raises:
        ValueError: head_dim is None and num_heads does not divide d_model, or `writes` is below 1.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        head_dim: int | None = None,
        expand: int = 2,
        writes: int = 2,
        conv_width: int | None = 4,
        negative_eigenvalues: bool = True,
    ) -> None:
        head_dim = head_width(d_model, num_heads, head_dim)
        if writes < 1:
            raise ValueError(f"writes must be at least 1, got {writes}")
        super().__init__(
            d_model,
            layer,
            num_heads=num_heads,
            head_dim=head_dim,
            value_dim=expand * head_dim,
            writes=writes,
            conv_width=conv_width,
        )
        value_width = num_heads * self.value_dim
        self.writes = writes
        self.beta_scale = 2.0 if negative_eigenvalues else 1.0
        self.beta_proj = nn.Linear(d_model, num_heads * writes, bias=False)
        self.decay_proj = nn.Linear(d_model, num_heads, bias=False)
        self.a_log = nn.Parameter(uniform_rates(num_heads).log())
        self.dt_bias = nn.Parameter(log_uniform_steps(num_heads))
        self.gate_proj = nn.Linear(d_model, value_width, bias=False)
        self.head_norm = RMSNorm(self.value_dim, eps=1e-5)
        self.out_proj = nn.Linear(value_width, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        times, length = (self.writes, 1) if new == 1 else (1, self.writes * new)
        return times * self.num_heads * recurrence_flops(length, self.head_dim, self.columns, writers=1)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # q (B, T, H, K), k (B, T, H, N K), v (B, T, H, N V)
        gate = torch.unflatten(self.gate_proj(x), -1, (self.num_heads, -1))  # (B, T, H, V)
        beta = torch.unflatten(self.beta_scale * self.beta_proj(x).sigmoid(), -1, (self.num_heads, -1))  # (B, T, H, N)
        log_decay = (-self.a_log.exp() * F.softplus(self.decay_proj(x) + self.dt_bias)).unsqueeze(-1)  # (B, T, H, 1)
        k = unit(torch.unflatten(k, -1, (self.writes, -1)))  # (B, T, H, N, K)
        v, beta = torch.unflatten(v, -1, (self.writes, -1)), beta.unsqueeze(-1)  # (B, T, H, N, V), (B, T, H, N, 1)
        q = (unit(q) * self.head_dim**-0.5).unsqueeze(3).expand_as(k)
        o, s = in_turn(Updates(q, k, v, log_decay, beta), state["s"], real, single=single)  # o (B, T, H, N, V)
        o = o[:, :, :, -1]  # (B, T, H, V), read after the last write
        heads = self.head_norm(o.to(x.dtype)) * F.silu(gate)
        return self.out_proj(heads.flatten(2)), conv_state | {"s": s}  # y (B, T, D)
