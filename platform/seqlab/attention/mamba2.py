"""Mamba-2: a state space model equivalent to linear attention with one decay per head (Dao & Gu 2024).

B batch, T length, D d_model, H heads, P head_dim, N d_state, G groups, W convolution width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.heads import heads_in_groups
from seqlab.nn.init import log_uniform_steps, uniform_rates
from seqlab.nn.matrix_recurrence import matrix_recurrence, recurrence_flops
from seqlab.nn.recurrent_mixer import RecurrentMixer
from seqlab.nn.short_conv import ShortConv
from seqlab.nn.updates import Updates


class Mamba2(RecurrentMixer):
    """State space with one decay per head, equivalent to linear attention.

    Dao & Gu 2024, "Transformers are SSMs", sections 6 and 7: with (z, u, dt) = W_in x, (v, k, q) =
    swish(conv(u) + b), d_t = softplus(dt + b_dt) and one scalar a < 0 per head,

    S_t = exp(d_t a) S_{t-1} + d_t k_t v_t^T,   o_t = S_t^T q_t + skip v_t,   y = W_o norm(o * swish(z)).

    The paper's x, B and C are v, k and q here. The norm is an RMS norm over each group's channels. The state is
    `conv (B, W - 1, D expand + 2 G N)`, the last inputs u, and `s (B, H, N, P)`.

    Args:
        d_state: state width N per head.
        head_dim: head width P; must divide expand * d_model.
        expand: ratio of the inner width to d_model.
        num_groups: number of groups G whose heads share k and q; must divide the number of heads.
        conv_width: kernel width W of the short convolution.

    Raises:
        ValueError: head_dim or num_groups does not divide as required.
    """

    looks_back = True

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        d_state: int = 64,
        head_dim: int = 64,
        expand: int = 2,
        num_groups: int = 1,
        conv_width: int = 4,
    ) -> None:
        super().__init__(d_model, layer)
        self.inner_width = inner = expand * d_model
        self.num_heads = heads_in_groups(inner, head_dim, num_groups)
        self.d_state = d_state
        self.head_dim = head_dim
        self.num_groups = num_groups
        conv_channels = self.inner_width + 2 * num_groups * d_state
        self.in_proj = nn.Linear(d_model, self.inner_width + conv_channels + self.num_heads, bias=False)
        self.conv = ShortConv(conv_channels, conv_width)
        self.a_log = nn.Parameter(uniform_rates(self.num_heads).log())
        self.dt_bias = nn.Parameter(log_uniform_steps(self.num_heads))
        self.skip = nn.Parameter(torch.ones(self.num_heads))
        self.norm_weight = nn.Parameter(torch.ones(self.inner_width))
        self.out_proj = nn.Linear(self.inner_width, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return self.num_heads * recurrence_flops(new, self.d_state, self.head_dim)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        keys_width = self.num_groups * self.d_state
        z, u, dt = torch.split(
            self.in_proj(x), [self.inner_width, self.inner_width + 2 * keys_width, self.num_heads], dim=-1
        )  # (B, T, H P), (B, T, H P + 2 G N), (B, T, H)
        u, conv = self.conv(u, state["conv"], None if real is None else real.sum(dim=1))
        # v (B, T, H P), k and q (B, T, G N)
        v, k, q = torch.split(F.silu(u), [self.inner_width, keys_width, keys_width], dim=-1)
        v = torch.unflatten(v, -1, (self.num_heads, -1))  # (B, T, H, P)
        # (B, T, G N) to (B, T, H, N)
        k, q = (
            torch.unflatten(y, -1, (self.num_groups, -1)).repeat_interleave(self.num_heads // self.num_groups, dim=2)
            for y in (k, q)
        )
        step = F.softplus(dt + self.dt_bias).unsqueeze(-1)  # (B, T, H, 1)
        log_decay = step * -self.a_log.exp().unsqueeze(-1)  # (B, T, H, 1)
        o, new_s = self.recur(x, Updates(q, step * k, v, log_decay), state, real, single=single)  # o (B, T, H, P)
        gated = (o + self.skip.unsqueeze(-1) * v).to(x.dtype).flatten(2) * F.silu(z)  # (B, T, H P)
        groups = torch.unflatten(gated, -1, (self.num_groups, -1))  # (B, T, G, H P / G)
        normed = F.rms_norm(groups, groups.shape[-1:], eps=1e-5).flatten(2) * self.norm_weight  # (B, T, H P)
        return self.out_proj(normed), {"conv": conv} | new_s  # y (B, T, D)

    def recur(
        self, x: Tensor, updates: Updates, state: State, real: Tensor | None, *, single: bool
    ) -> tuple[Tensor, State]:
        """o (B, T, H, P) and the new `s` of the state, for x (B, T, D)."""
        o, s = matrix_recurrence(updates, state["s"], real, single=single)
        return o, {"s": s}

    def state_spec(self) -> StateSpec:
        return self.conv.entry, StateEntry("s", (self.num_heads, self.d_state, self.head_dim))
