"""Kimi delta attention: the gated delta rule with a decay for each key channel (Kimi Team 2025).

B batch, T length, D d_model, H heads, K head_dim, W convolution width.
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


class KimiDeltaAttention(LinearFamily):
    """Gated delta rule with a decay for each key channel.

    Kimi Team 2025, "Kimi Linear", equation 1: S_t = (I - beta_t k_t k_t^T) diag(alpha_t) S_{t-1} +
    beta_t k_t v_t^T and o_t = S_t^T q_t / sqrt(K), with q, k, v and beta as in `DeltaNet` and one decay per key
    channel, alpha_t = exp(-exp(a) softplus(W_up W_down x_t + b)), with a per head and b per channel, as in the authors'
    code; then y = W_o (sigmoid(G_up G_down x) * norm(o)), with an RMS norm per head. Both low ranks are K.

    The state is documented in `LinearFamily`, with V = K.

    Args:
        num_heads: number of heads H.
        head_dim: key and value width K; None = d_model / num_heads.
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
        conv_width: int | None = 4,
        negative_eigenvalues: bool = False,
    ) -> None:
        head_dim = head_width(d_model, num_heads, head_dim)
        super().__init__(
            d_model, layer, num_heads=num_heads, head_dim=head_dim, value_dim=head_dim, conv_width=conv_width
        )
        width = num_heads * head_dim
        self.beta_scale = 2.0 if negative_eigenvalues else 1.0
        self.make_write(width)
        self.decay_down = nn.Linear(d_model, head_dim, bias=False)
        self.decay_up = nn.Linear(head_dim, width, bias=False)
        self.a_log = nn.Parameter(uniform_rates(num_heads).log())
        self.dt_bias = nn.Parameter(log_uniform_steps(width))
        self.gate_down = nn.Linear(d_model, head_dim, bias=False)
        self.gate_up = nn.Linear(head_dim, width)
        self.head_norm = RMSNorm(head_dim, eps=1e-5)
        self.out_proj = nn.Linear(width, d_model, bias=False)

    def make_write(self, width: int) -> None:
        """Makes the layers of `write`; `width` is H K."""
        self.beta_proj = nn.Linear(self.d_model, self.num_heads, bias=False)

    def write(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Updates:
        """Updates of x (B, T, D), from q, k, v and log_decay (B, T, H, K)."""
        beta = self.beta_scale * self.beta_proj(x).sigmoid().unsqueeze(-1)  # (B, T, H, 1)
        return Updates(q, k, v, log_decay, beta)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.head_dim, self.columns, triangular=True, writers=1)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        q, k, v, conv_state = self.project(x, state, real)  # (B, T, H, K) each
        q, k = unit(q), unit(k)
        step = F.softplus(self.decay_up(self.decay_down(x)) + self.dt_bias)  # (B, T, H K)
        step = torch.unflatten(step, -1, (self.num_heads, -1))  # (B, T, H, K)
        updates = self.write(x, q * self.head_dim**-0.5, k, v, -self.a_log.exp().unsqueeze(-1) * step)
        o, s = matrix_recurrence(updates, state["s"], real, single=single)  # o (B, T, H, K), s (B, H, K, K)
        gate = self.gate_up(self.gate_down(x)).sigmoid()  # (B, T, H K)
        return self.out_proj(gate * self.head_norm(o.to(x.dtype)).flatten(2)), conv_state | {"s": s}  # y (B, T, D)
