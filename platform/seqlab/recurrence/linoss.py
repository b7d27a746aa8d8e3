"""Linear oscillatory state space: forced harmonic oscillators, integrated implicitly (Rusch & Rus 2025).

B batch, T length, D d_model, N d_state.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.numerics import raised
from seqlab.nn.padding import is_real
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.recurrence.linear_scan import Pair, complex_scan, complex_step

FLATTEST = 1e-4
"""Smallest frequency, by which the position of an oscillator is divided."""


class LinOSS(AlignedMixer):
    """Forced harmonic oscillators, integrated by an implicit step.

    Rusch & Rus 2025, "Oscillatory State-Space Models", equations 1 and 4, LinOSS-IM: y'' = -w^2 y + B x with step
    size d = sigmoid(step), integrated by backward Euler; the output is GLU(W gelu(C y + skip * x)).

    With the velocity z, the complex number h = z + i w y turns the implicit step of each oscillator into
    h_t = (h_{t-1} + d B x_t) / (1 - i w d), so that no frequency makes it unstable. The paper's A is w^2, at least 0;
    here w is a parameter itself, and drawn so that w^2 is uniform in 0 .. 1, as theirs. Their B and C are complex; with
    a real x these are two real inputs and outputs, which a larger N has too.

    The state is `velocity (B, N)` and `position (B, N)`, the latter times w.

    Args:
        d_state: number of oscillators N; None = d_model.
    """

    def __init__(self, d_model: int, layer: int = 0, *, d_state: int | None = None) -> None:
        super().__init__(d_model, layer)
        self.d_state = d_model if d_state is None else d_state
        self.frequency = nn.Parameter(torch.rand(self.d_state).sqrt())
        self.step_size = nn.Parameter(torch.rand(self.d_state))
        self.in_proj = nn.Linear(d_model, self.d_state, bias=False)
        self.position_proj = nn.Linear(self.d_state, d_model, bias=False)
        self.skip = nn.Parameter(torch.randn(d_model))
        self.out_proj = nn.Linear(d_model, 2 * d_model)

    def flops(self, new: int, seen: int) -> int:
        return 0

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        decay, (b_real, b_imag) = self._decay(), self._inputs(x)  # (N,) each, (B, T, N) each
        a_real, a_imag = (part.expand_as(b_real) for part in decay)  # (B, T, N) each
        if length is not None:
            real = is_real(x, length)  # (B, T, 1)
            a_real, a_imag = torch.where(real, a_real, 1.0), torch.where(real, a_imag, 0.0)
            b_real, b_imag = torch.where(real, b_real, 0.0), torch.where(real, b_imag, 0.0)
        h = complex_scan((a_real, a_imag), (b_real, b_imag), (state["velocity"], state["position"]))  # (B, T, N) each
        return self._output(x, h[1]), self._state((h[0][:, -1], h[1][:, -1]))

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        h = complex_step(self._decay(), self._inputs(x_t), (state["velocity"], state["position"]))  # (B, N) each
        return self._output(x_t, h[1]), self._state(h)

    def state_spec(self) -> StateSpec:
        return StateEntry("velocity", (self.d_state,)), StateEntry("position", (self.d_state,))

    def _state(self, h: Pair) -> State:
        dtype = self.frequency.dtype
        return {"velocity": h[0].to(dtype), "position": h[1].to(dtype)}

    def _omega(self) -> Tensor:
        return raised(self.frequency).abs().clamp(min=FLATTEST)

    def _decay(self) -> Pair:
        """1 / (1 - i w d), (N,) each part."""
        turn = self._omega() * raised(self.step_size).sigmoid()
        shrunk, dtype = 1 / (1 + turn.square()), self.frequency.dtype
        return shrunk.to(dtype), (turn * shrunk).to(dtype)

    def _inputs(self, x: Tensor) -> Pair:
        """d B x / (1 - i w d) of x (..., D): (..., N) each part."""
        force = self.in_proj(x).to(self.frequency.dtype) * self.step_size.sigmoid()  # (..., N)
        real, imag = self._decay()
        return force * real, force * imag

    def _output(self, x: Tensor, position: Tensor) -> Tensor:
        """Output of x (..., D) and the position times w (..., N)."""
        y = self.position_proj((position / self._omega()).to(x.dtype)) + self.skip * x  # (..., D)
        out: Tensor = F.glu(self.out_proj(F.gelu(y)))
        return out
