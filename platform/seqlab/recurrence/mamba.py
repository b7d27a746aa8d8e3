"""The selective state space model S6 in its block (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective
State Spaces").

B batch, T length, D d_model, E inner channels, N d_state, R rank of dt, W convolution width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.numerics import at_least_float32
from seqlab.nn.padding import is_real
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.nn.short_conv import ShortConv
from seqlab.recurrence.selective_scan import selective_scan, selective_step


class Mamba(AlignedMixer):
    """x, z = in_proj(input); x = silu(ShortConv(x)); dt, B, C = x_proj(x), dt = softplus(dt_weight dt + dt_bias);
    h_t = exp(dt A) * h_{t-1} + dt x B, y = C h_t + skip * x, output out_proj(y * silu(z)), with A = -exp(a_log) < 0
    (Gu & Dao 2023, algorithm 2 and section 3.4).

    The state is `conv (B, W - 1, E)` and `h (B, E, N)`.

    Args:
        d_state: number of states N per channel.
        expand: inner width E in multiples of d_model, at least 1 (ValueError).
        conv_width: kernel width W of the short convolution.
        dt_rank: rank R of the dt projection; None = d_model/16, rounded up.
        dt_min: lower bound of the log-uniform initialisation of dt, above 0 (ValueError).
        dt_max: upper bound of that initialisation.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        d_state: int = 16,
        expand: int = 2,
        conv_width: int = 4,
        dt_rank: int | None = None,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
    ) -> None:
        super().__init__(d_model, layer)
        if expand < 1:
            raise ValueError(f"expand must be at least 1, got {expand}")
        if not 0 < dt_min <= dt_max:
            raise ValueError(f"0 < dt_min <= dt_max must hold, got dt_min {dt_min} and dt_max {dt_max}")
        self.d_state = d_state
        self.d_inner = expand * d_model
        self.dt_rank = -(-d_model // 16) if dt_rank is None else dt_rank
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv = ShortConv(self.d_inner, conv_width)
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        # Not a Linear, which models reinitialise: dt's initial scale and range set the memory length (section 3.6).
        self.dt_weight = nn.Parameter((2 * torch.rand(self.d_inner, self.dt_rank) - 1) * self.dt_rank**-0.5)
        dt = torch.exp(math.log(dt_min) + torch.rand(self.d_inner) * (math.log(dt_max) - math.log(dt_min)))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # the inverse of softplus
        self.a_log = nn.Parameter(torch.arange(1, d_state + 1).float().log().expand(self.d_inner, -1).clone())
        self.skip = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def flops(self, new: int, seen: int) -> int:
        return 2 * new * (self.dt_weight.numel() + self.d_inner * self.d_state)

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        u, z = self.in_proj(x).chunk(2, dim=-1)  # (B, T, E) each
        u, conv = self.conv(u, state["conv"], length)  # (B, T, E), (B, W - 1, E)
        h, u = state["h"], F.silu(u)
        u, dt, b, c = self._select(u, h.dtype)  # u and dt (B, T, E), b and c (B, T, N)
        if length is not None:
            dt = torch.where(is_real(dt, length), dt, 0.0)  # dt = 0 is the identity
        # y (B, T, E), h (B, E, N)
        y, h = selective_scan(at_least_float32(h), self._decay(), *map(at_least_float32, (u, dt, b, c)))
        return self._output(y, u, z), {"conv": conv, "h": h.to(self.a_log.dtype)}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        u, z = self.in_proj(x_t).chunk(2, dim=-1)  # (B, E) each
        u, conv = self.conv.step(u, state["conv"])  # (B, E), (B, W - 1, E)
        u, dt, b, c = self._select(F.silu(u), state["h"].dtype)  # u and dt (B, E), b and c (B, N)
        inputs = map(at_least_float32, (u, dt, b, c))
        y, h = selective_step(at_least_float32(state["h"]), self._decay(), *inputs)  # y (B, E), h (B, E, N)
        return self._output(y, u, z), {"conv": conv, "h": h.to(self.a_log.dtype)}

    def _decay(self) -> Tensor:
        """A, (E, N)."""
        return -at_least_float32(self.a_log).exp()

    def state_spec(self) -> StateSpec:
        return self.conv.entry, StateEntry("h", (self.d_inner, self.d_state))

    def _select(self, u: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """u and dt (..., E), B and C (..., N) in the state's dtype."""
        dt, b, c = torch.split(self.x_proj(u), [self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = F.softplus(F.linear(dt, self.dt_weight).to(dtype) + self.dt_bias)  # (..., R) to (..., E)
        return u.to(dtype), dt, b.to(dtype), c.to(dtype)

    def _output(self, y: Tensor, u: Tensor, z: Tensor) -> Tensor:
        gated = (y + self.skip * u) * F.silu(z)
        out: Tensor = self.out_proj(gated.to(z.dtype))  # (..., E) to (..., D)
        return out
