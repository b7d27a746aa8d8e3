"""Mamba-3: a state space with the trapezoidal rule and a complex state that the input rotates (Lahoti et al. 2026).

B batch, T length, D d_model, H heads, P head_dim, N d_state, G groups, M rank, R rotated pairs of channels.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.heads import heads_in_groups
from seqlab.nn.init import log_uniform_steps
from seqlab.nn.matrix_recurrence import in_turn, recurrence_flops
from seqlab.nn.norm import RMSNorm
from seqlab.nn.numerics import at_least_float32, running_sum
from seqlab.nn.recurrent_mixer import RecurrentMixer
from seqlab.nn.short_conv import extend_history
from seqlab.nn.updates import Updates

SLOWEST = 1e-4
"""Smallest decay rate."""


class Mamba3(RecurrentMixer):
    """State space with the trapezoidal rule and a state that the input rotates.

    Lahoti et al. 2026, "Mamba-3", section 3: (z, v, k, q, dt, a, l, w) = W_in x, step d_t = softplus(dt + b_dt),
    decay alpha_t = exp(-d_t softplus(a)), trapezoidal weight lambda_t = sigmoid(l),

    S_t = alpha_t S_{t-1} + (1 - lambda_t) d_t alpha_t k_{t-1} v_{t-1}^T + lambda_t d_t k_t v_t^T,
    o_t = S_t^T q_t + skip v_t,   y = W_o (o * swish(z)).

    With a rank M above 1 (multiple inputs and outputs) a head has M keys and M queries. Key m writes v times a gain per
    channel, query m reads an output with a gate, swish of z times another gain, and a third gain weighs the sum of the
    outputs.

    Keys and queries are RMS-normed, get a bias per head, and half of their channels are rotated in pairs by the sum of
    d_i pi tanh(w_i) up to t, which stands for a complex state. There is no convolution. The paper's x, B and C are v,
    k and q here.

    The state is `angle (B, H, R)` in at least float32, modulo 2 pi; `last (B, 1, H (M N + P + 1))`, the last token's
    keys, value and lambda d; and `s (B, H, N, P)`, the matrix without the last token's own write.

    Args:
        d_state: state width N per head; a multiple of 4.
        head_dim: head width P; must divide expand * d_model.
        expand: ratio of the inner width to d_model.
        num_groups: number of groups G whose heads share k and q; must divide the number of heads.
        rank: number M of keys and queries per head, at least 1.

    Raises:
        ValueError: d_state, head_dim or num_groups does not divide as required, or rank is below 1.
    """

    looks_back = True
    v_gain: nn.Parameter | None
    out_gain: nn.Parameter | None
    z_gain: nn.Parameter | None

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        d_state: int = 64,
        head_dim: int = 64,
        expand: int = 2,
        num_groups: int = 1,
        rank: int = 1,
    ) -> None:
        super().__init__(d_model, layer)
        self.inner_width = inner = expand * d_model
        self.num_heads = heads_in_groups(inner, head_dim, num_groups)
        if d_state < 4 or d_state % 4:
            raise ValueError(f"d_state must be a multiple of 4, got {d_state}")
        if rank < 1:
            raise ValueError(f"rank must be at least 1, got {rank}")
        self.d_state, self.head_dim, self.num_groups, self.num_pairs = d_state, head_dim, num_groups, d_state // 4
        self.rank = rank
        keys = rank * num_groups * d_state
        self.widths = [inner, inner, keys, keys, *[self.num_heads] * 3, self.num_pairs]
        self.in_proj = nn.Linear(d_model, sum(self.widths), bias=False)
        self.dt_bias = nn.Parameter(log_uniform_steps(self.num_heads))
        self.k_norm, self.q_norm = RMSNorm(d_state, eps=1e-5), RMSNorm(d_state, eps=1e-5)
        self.k_bias = nn.Parameter(torch.ones(self.num_heads, rank, d_state))
        self.q_bias = nn.Parameter(torch.ones(self.num_heads, rank, d_state))
        gains = torch.ones(self.num_heads, rank, head_dim)
        for name, gain in (("v_gain", gains / rank), ("out_gain", gains / rank), ("z_gain", gains)):
            self.register_parameter(name, nn.Parameter(gain) if rank > 1 else None)
        self.skip = nn.Parameter(torch.ones(self.num_heads))
        self.out_proj = nn.Linear(inner, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        times, length = (self.rank, 1) if new == 1 else (1, self.rank * new)
        return times * self.num_heads * recurrence_flops(length, self.d_state, self.head_dim)

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        length = None if real is None else real.sum(dim=1)
        z, v, k, q, dt, rate, share, turn = torch.split(self.in_proj(x), self.widths, dim=-1)
        v = torch.unflatten(v, -1, (self.num_heads, -1))  # (B, T, H, P)
        step = F.softplus(dt + self.dt_bias)  # (B, T, H)
        log_decay = -F.softplus(rate).clamp(min=SLOWEST) * step  # (B, T, H)
        own = share.sigmoid() * step  # (B, T, H), weight of a token's write at its own step
        turned = at_least_float32(step.unsqueeze(-1) * (math.pi * turn.tanh()).unsqueeze(2))  # (B, T, H, R)
        if real is not None:
            turned = turned * real[:, :, None, None]
        angle = state["angle"].unsqueeze(1) + running_sum(turned, 1)  # (B, T, H, R)
        k = self._rotated(self._normed(k, self.k_norm) + self.k_bias, angle.unsqueeze(3))  # (B, T, H, M, N)
        q = self._rotated(self._normed(q, self.q_norm) + self.q_bias, angle.unsqueeze(3))  # (B, T, H, M, N)

        # A token is written at its own step and at the next one. The matrix gets both writes at the next step; its own
        # output gets the first directly.
        token = torch.cat((k.flatten(3), v, own.unsqueeze(-1)), dim=-1)  # (B, T, H, M N + P + 1)
        history, last = extend_history(state["last"], token.flatten(2), length)  # (B, 1 + T, H (M N + P + 1))
        before = torch.unflatten(history[:, :-1], -1, (self.num_heads, -1))  # (B, T, H, M N + P + 1)
        k_before, v_before, own_before = torch.split(before, [self.rank * self.d_state, self.head_dim, 1], dim=-1)
        weight = (own_before + (step - own).unsqueeze(-1)) * log_decay.exp().unsqueeze(-1)  # (B, T, H, 1)
        k_before = torch.unflatten(weight * k_before, -1, (self.rank, -1))  # (B, T, H, M, N)
        v, v_before = _times(v.unsqueeze(3), self.v_gain), _times(v_before.unsqueeze(3), self.v_gain)  # (B, T, H, M, P)
        updates = Updates(q, k_before, v_before, log_decay.unsqueeze(-1))
        o, s = in_turn(updates, state["s"], real, single=single)  # o (B, T, H, M, P), s (B, H, N, P)
        # Query m has read the writes up to m. It also reads those after m, and the token's own.
        o = o + own[..., None, None] * _attended(_scores(q, k), v) + self.skip[:, None, None] * v
        if self.rank > 1:
            o = o + _attended(_scores(q, k_before).triu(1), v_before)
        z = torch.unflatten(z, -1, (self.num_heads, 1, -1))  # (B, T, H, 1, P)
        gated = (
            _times(o.to(x.dtype) * F.silu(_times(z, self.z_gain)), self.out_gain).sum(dim=3).flatten(2)
        )  # (B, T, H P)
        whole = angle[:, -1]  # padding turns nothing, so the last is that of the last real token
        angle = whole - 2 * math.pi * torch.floor(whole / (2 * math.pi))  # (B, H, R)
        return self.out_proj(gated), {"angle": angle, "last": last, "s": s}  # y (B, T, D)

    def state_spec(self) -> StateSpec:
        wide = torch.promote_types(self.in_proj.weight.dtype, torch.float32)
        return (
            StateEntry("angle", (self.num_heads, self.num_pairs), dtype=wide),
            StateEntry("last", (1, self.num_heads * (self.rank * self.d_state + self.head_dim + 1)), kind="window"),
            StateEntry("s", (self.num_heads, self.d_state, self.head_dim)),
        )

    def _normed(self, x: Tensor, norm: RMSNorm) -> Tensor:
        """Normed groups of x (B, T, M G N), repeated for their heads: (B, T, H, M, N), in the dtype of the gain."""
        by_group = torch.unflatten(x.to(norm.weight.dtype), -1, (self.rank, self.num_groups, -1))
        groups: Tensor = norm(by_group).transpose(2, 3)  # (B, T, G, M, N)
        return groups.repeat_interleave(self.num_heads // self.num_groups, dim=2)

    def _rotated(self, x: Tensor, angle: Tensor) -> Tensor:
        """Rotates neighbouring channels of the first half of x (B, T, H, M, N) by angle (B, T, H, 1, R)."""
        turned, rest = torch.split(x, [2 * self.num_pairs, self.d_state - 2 * self.num_pairs], dim=-1)
        even, odd = torch.unflatten(turned, -1, (-1, 2)).unbind(-1)  # (B, T, H, M, R) each
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        pairs = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)  # (B, T, H, M, R, 2)
        return torch.cat((pairs.flatten(-2), rest), dim=-1)


def _times(x: Tensor, gain: Tensor | None) -> Tensor:
    """x (B, T, H, 1 or M, P) times a gain (H, M, P); None = 1."""
    return x if gain is None else x * gain


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """Scores (B, T, H, M, M) of a token's queries with its keys, both (B, T, H, M, N)."""
    return (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(dim=-1)


def _attended(scores: Tensor, v: Tensor) -> Tensor:
    """Outputs (B, T, H, M, P): values (B, T, H, M, P) times scores (B, T, H, M, M)."""
    return (scores.unsqueeze(-1) * v.unsqueeze(-3)).sum(dim=-2)
