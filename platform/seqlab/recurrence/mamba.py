"""The selective state space model S6 in its block (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective
State Spaces").

B batch, T length, D d_model, E inner channels, N d_state, R rank of dt, L steps of a chunk.
"""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqlab.mixer import State
from seqlab.nn.onnx_mode import emitting
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.nn.short_conv import ShortConv
from seqlab.recurrence.aligned import AlignedMixer, is_real
from seqlab.recurrence.linear_scan import linear_scan

_CHUNK = 128


class Mamba(AlignedMixer):
    """x, z = in_proj(input); x = silu(ShortConv(x)); dt, B, C = x_proj(x), dt = softplus(dt_weight dt + dt_bias);
    h_t = exp(dt A) * h_{t-1} + dt x B, y = C h_t + skip * x, output out_proj(y * silu(z)), with A = -exp(a_log) < 0
    (Gu & Dao 2023, algorithm 2 and section 3.4).

    Training keeps the inputs of a chunk of 128 steps, and computes its states (B, L, E, N) again for the gradient.

    The state is `conv (B, conv_width - 1, E)` and `h (B, E, N)`.

    Args:
        d_state: N.
        expand: E in multiples of d_model, at least 1 (ValueError).
        conv_width: width of the short convolution.
        dt_rank: R; None = d_model/16, rounded up.
        dt_min: dt begins log-uniform from here, above 0 (ValueError),
        dt_max: to here.
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
        # Not a Linear: dt's scale and range at the start are the model's memory (section 3.6).
        self.dt_weight = nn.Parameter((2 * torch.rand(self.d_inner, self.dt_rank) - 1) * self.dt_rank**-0.5)
        dt = torch.exp(math.log(dt_min) + torch.rand(self.d_inner) * (math.log(dt_max) - math.log(dt_min)))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # the inverse of softplus
        self.a_log = nn.Parameter(torch.arange(1, d_state + 1).float().log().expand(self.d_inner, -1).clone())
        self.skip = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u, conv = self.conv(u, state["conv"], length)
        h, u = state["h"], F.silu(u)
        u, dt, b, c = self._select(u, h.dtype)
        if length is not None:
            dt = torch.where(is_real(dt, length), dt, 0.0)  # a step of no time changes nothing
        y, h = self._scan(h, u, dt, b, c)
        return self._output(y, u, z), {"conv": conv, "h": h}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        u, z = self.in_proj(x_t).chunk(2, dim=-1)
        u, conv = self.conv.step(u, state["conv"])
        u, dt, b, c = self._select(F.silu(u), state["h"].dtype)
        (h,), y = _advance((state["h"],), (u, dt, b, c), -self.a_log.exp())
        return self._output(y, u, z), {"conv": conv, "h": h}

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        return {
            "conv": self.conv.init_state(batch_size),
            "h": self.a_log.new_zeros(batch_size, self.d_inner, self.d_state),
        }

    def state_size(self, seq_len: int) -> int:
        return self.d_inner * (self.conv.width - 1 + self.d_state)

    def _select(self, u: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """u and dt (..., E), B and C (..., N) in the state's dtype."""
        dt, b, c = torch.split(self.x_proj(u), [self.dt_rank, self.d_state, self.d_state], dim=-1)
        dt = F.softplus(F.linear(dt, self.dt_weight).to(dtype) + self.dt_bias)
        return u.to(dtype), dt, b.to(dtype), c.to(dtype)

    def _scan(self, h: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """C h_t (B, T, E) and the last h (B, E, N)."""
        decay = -self.a_log.exp()
        if emitting():
            y, (h,) = scan_over_time(lambda carry, now: _advance(carry, now, decay), (h,), (u, dt, b, c))
            return y, h
        outputs = []
        frugal = torch.is_grad_enabled() and u.shape[1] > _CHUNK
        run = partial(checkpoint, _chunk, use_reentrant=False, preserve_rng_state=False) if frugal else _chunk
        for begin in range(0, u.shape[1], _CHUNK):
            y, h = run(h, decay, *(part[:, begin : begin + _CHUNK] for part in (u, dt, b, c)))
            outputs.append(y)
        return torch.cat(outputs, dim=1), h

    def _output(self, y: Tensor, u: Tensor, z: Tensor) -> Tensor:
        gated = (y + self.skip * u) * F.silu(z)
        out: Tensor = self.out_proj(gated.to(z.dtype))
        return out


def _advance(carry: Carry, now: tuple[Tensor, ...], decay: Tensor) -> tuple[Carry, Tensor]:
    """One step from h (B, E, N) with u and dt (B, E), B and C (B, N)."""
    u, dt, b, c = now
    h = torch.exp(dt.unsqueeze(-1) * decay) * carry[0] + (dt * u).unsqueeze(-1) * b.unsqueeze(1)
    return (h,), (h * c.unsqueeze(1)).sum(dim=-1)


def _chunk(h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """All steps of a chunk, its states (B, L, E, N) at once: C h_t (B, L, E) and the last h (B, E, N)."""
    factors = torch.exp(dt.unsqueeze(-1) * decay)
    inputs = (dt * u).unsqueeze(-1) * b.unsqueeze(2)
    states = linear_scan(factors.flatten(2), inputs.flatten(2), h.flatten(1)).view_as(factors).to(h.dtype)
    return torch.matmul(states, c.unsqueeze(-1)).squeeze(-1), states[:, -1]
