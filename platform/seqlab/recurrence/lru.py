"""The linear recurrent unit (Orvieto et al. 2023, "Resurrecting Recurrent Neural Networks for Long Sequences").

B batch, T length, D d_model, N d_state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.numerics import raised
from seqlab.nn.padding import is_real
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.recurrence.linear_scan import Pair, complex_scan, complex_step


class LRU(AlignedMixer):
    """h_t = lambda * h_{t-1} + exp(gamma_log) * (B x_t), y_t = Re(C h_t) + skip * x_t, with complex h, B, C and
    lambda = exp(-exp(nu_log) + i exp(theta_log)) (Orvieto et al. 2023, section 3 and appendix A).

    The state is `h_real (B, N)` and `h_imag (B, N)`.

    Args:
        d_state: number N of complex values in the state; None = d_model.
        r_min: inner radius of the ring in which lambda is initialised uniformly; 0 <= r_min < r_max <= 1 (ValueError).
        r_max: outer radius of the ring.
        max_phase: largest initial phase of lambda in radians; small phases favour long memory.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        d_state: int | None = None,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 2 * math.pi,
    ) -> None:
        super().__init__(d_model, layer)
        if not 0 <= r_min < r_max <= 1:
            raise ValueError(f"0 <= r_min < r_max <= 1 must hold, got r_min {r_min} and r_max {r_max}")
        self.d_state = d_model if d_state is None else d_state
        # Bounded away from 0 and 1, where a logarithm is infinite.
        square = (r_min**2 + torch.rand(self.d_state) * (r_max**2 - r_min**2)).clamp(1e-8, 1 - 1e-6)
        self.nu_log = nn.Parameter(torch.log(-0.5 * torch.log(square)))
        self.theta_log = nn.Parameter(torch.log(max_phase * torch.rand(self.d_state).clamp(min=1e-6)))
        self.gamma_log = nn.Parameter(0.5 * torch.log(1 - square))
        self.in_proj = nn.Linear(d_model, 2 * self.d_state, bias=False)
        self.out_proj = nn.Linear(2 * self.d_state, d_model, bias=False)
        self.skip = nn.Parameter(torch.randn(d_model))
        nn.init.normal_(self.in_proj.weight, std=(2 * d_model) ** -0.5)
        nn.init.normal_(self.out_proj.weight, std=self.d_state**-0.5)

    def flops(self, new: int, seen: int) -> int:
        return 0

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        b = self._inputs(x, state)  # (B, T, N) each
        a = tuple(part.expand_as(b[0]) for part in self._decay())  # (B, T, N) each
        if length is not None:
            real = is_real(x, length)  # (B, T, 1)
            a = (torch.where(real, a[0], 1.0), torch.where(real, a[1], 0.0))
            b = (torch.where(real, b[0], 0.0), torch.where(real, b[1], 0.0))
        h = complex_scan((a[0], a[1]), b, (state["h_real"], state["h_imag"]))  # (B, T, N) each
        return self._output(x, h), self._state((h[0][:, -1], h[1][:, -1]))

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        h = complex_step(self._decay(), self._inputs(x_t, state), (state["h_real"], state["h_imag"]))  # (B, N) each
        return self._output(x_t, h), self._state(h)

    def state_spec(self) -> StateSpec:
        return StateEntry("h_real", (self.d_state,)), StateEntry("h_imag", (self.d_state,))

    def _state(self, h: Pair) -> State:
        dtype = self.nu_log.dtype
        return {"h_real": h[0].to(dtype), "h_imag": h[1].to(dtype)}

    def _decay(self) -> Pair:
        """lambda, (N,) each part."""
        nu, phase = (raised(log).exp() for log in (self.nu_log, self.theta_log))
        radius, dtype = torch.exp(-nu), self.nu_log.dtype
        return (radius * phase.cos()).to(dtype), (radius * phase.sin()).to(dtype)

    def _inputs(self, x: Tensor, state: State) -> Pair:
        """exp(gamma_log) B x of x (..., D): (..., N) each part."""
        real, imag = self.in_proj(x).to(state["h_real"].dtype).chunk(2, dim=-1)  # (..., N) each
        scale = torch.exp(self.gamma_log)
        return real * scale, imag * scale

    def _output(self, x: Tensor, h: Pair) -> Tensor:
        """Output of x and h; out_proj holds Re C and -Im C, concatenated."""
        y: Tensor = self.out_proj(torch.cat(h, dim=-1).to(x.dtype)) + self.skip * x  # (..., D)
        return y
