"""The gated delta rule: a write replaces the value stored under its key, and the whole state decays (Yang et al. 2024).

B batch, T length, D d_model, H heads, K head_dim, V value width, W convolution width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.linear_family import LinearFamily, unit
from seqlab.mixer import State
from seqlab.nn.heads import head_width
from seqlab.nn.init import log_uniform_steps, uniform_rates
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.norm import RMSNorm
from seqlab.nn.updates import Updates


class GatedDeltaNet(LinearFamily):
    """Delta rule whose state decays.

    Yang et al. 2024, "Gated Delta Networks", equation 10 and figure 1: S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1}
    + beta_t k_t v_t^T and o_t = S_t^T q_t / sqrt(K), with alpha_t = exp(-exp(a) softplus(W x_t + b)), the decay of
    Mamba-2; q, k, v and beta as in `DeltaNet`; y = W_o (swish(W_g x) * norm(o)), with an RMS norm per head.

    The state is documented in `LinearFamily`.

    Args:
        num_heads: number of heads H.
        head_dim: key width K; None = d_model / num_heads.
        expand: ratio V / K of value width to key width; 2 in the paper.
        conv_width: kernel width W; None = no convolution, and no swish of queries, keys and values either.
        negative_eigenvalues: whether beta ranges up to 2, so that a write can negate the stored value (Grazzi et al.
            2024).

    Raises:
        ValueError: head_dim is None and num_heads does not divide d_model.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        head_dim: int | None = None,
        expand: int = 2,
        conv_width: int | None = 4,
        negative_eigenvalues: bool = False,
    ) -> None:
        head_dim = head_width(d_model, num_heads, head_dim)
        super().__init__(
            d_model, layer, num_heads=num_heads, head_dim=head_dim, value_dim=expand * head_dim, conv_width=conv_width
        )
        value_width = num_heads * self.value_dim
        self.beta_scale = 2.0 if negative_eigenvalues else 1.0
        self.beta_proj = nn.Linear(d_model, num_heads, bias=False)
        self.decay_proj = nn.Linear(d_model, num_heads, bias=False)
        self.a_log = nn.Parameter(uniform_rates(num_heads).log())
        self.dt_bias = nn.Parameter(log_uniform_steps(num_heads))
        self.gate_proj = nn.Linear(d_model, value_width, bias=False)
        self.head_norm = RMSNorm(self.value_dim, eps=1e-5)
        self.out_proj = nn.Linear(value_width, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.columns, writers=1)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # q and k (B, T, H, K), v (B, T, H, V)
        gate = torch.unflatten(self.gate_proj(x), -1, (self.num_heads, -1))  # (B, T, H, V)
        q, k = unit(q), unit(k)
        beta = self.beta_scale * self.beta_proj(x).sigmoid().unsqueeze(-1)  # (B, T, H, 1)
        log_decay = (-self.a_log.exp() * F.softplus(self.decay_proj(x) + self.dt_bias)).unsqueeze(-1)  # (B, T, H, 1)
        updates = Updates(q * self.head_dim**-0.5, k, v, log_decay, beta)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, V), s (B, H, K, V)
        heads = self.head_norm(o.to(x.dtype)) * F.silu(gate)
        return self.out_proj(heads.flatten(2)), conv_state | {"s": s}  # y (B, T, D)
