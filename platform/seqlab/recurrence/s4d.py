"""The diagonal structured state space model (Gu et al. 2022, "On the Parameterization and Initialization of Diagonal
State Space Models").

B batch, T length, D d_model, N complex states of a channel, C chunks, L steps of a chunk.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.numerics import at_least_float32, expm1, raised, without_autocast
from seqlab.nn.operation import operation
from seqlab.nn.padding import is_real
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.recurrence.linear_scan import Pair, complex_product, complex_scan, complex_step

CHUNK = 64


class S4D(AlignedMixer):
    """Per channel, h' = A h + B x with a diagonal complex A, discretised with step dt by zero-order hold (equation 2):
    h_t = exp(dt A) h_{t-1} + (exp(dt A) - 1)/A x_t, y_t = 2 Re(C h_t) + skip * x_t; then out = GLU(W gelu(y)), which
    mixes the channels, as in the authors' code. A channel's other N states are the conjugates; B is 1 (section 3.2).

    Training is chunked: within a chunk, the convolution with 2 Re(C exp(k dt A) B) is one matrix product per channel;
    between chunks, the recurrence is used. No power of exp(dt A) exceeds 1.

    The state is `h_real (B, D, N)` and `h_imag (B, D, N)`.

    Args:
        d_state: number of states per channel, including conjugates; N is half of it. Must be even (ValueError).
        init: "lin": A_n = -1/2 + i pi n; "inv": A_n = -1/2 + i (d_state/pi) (d_state/(2n + 1) - 1) (section 4.2).
        dt_min: lower bound of the log-uniform initialisation of dt, above 0 (ValueError).
        dt_max: upper bound of that initialisation.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        d_state: int = 64,
        init: Literal["lin", "inv"] = "lin",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
    ) -> None:
        super().__init__(d_model, layer)
        if d_state < 2 or d_state % 2:
            raise ValueError(f"d_state must be positive and even, since states come in conjugate pairs, got {d_state}")
        if init not in ("lin", "inv"):
            raise ValueError(f'init must be "lin" or "inv", got {init!r}')
        if not 0 < dt_min <= dt_max:
            raise ValueError(f"0 < dt_min <= dt_max must hold, got dt_min {dt_min} and dt_max {dt_max}")
        self.d_state = d_state
        n = torch.arange(d_state // 2)
        frequency = math.pi * n if init == "lin" else d_state / math.pi * (d_state / (2 * n + 1) - 1)
        log_dt = math.log(dt_min) + torch.rand(d_model) * (math.log(dt_max) - math.log(dt_min))
        self.log_dt = nn.Parameter(log_dt)
        self.log_decay = nn.Parameter(torch.full((d_model, d_state // 2), math.log(0.5)))
        self.frequency = nn.Parameter(frequency.float().expand(d_model, -1).clone())
        # A complex standard normal.
        self.c_real = nn.Parameter(torch.randn(d_model, d_state // 2) / math.sqrt(2))
        self.c_imag = nn.Parameter(torch.randn(d_model, d_state // 2) / math.sqrt(2))
        self.skip = nn.Parameter(torch.randn(d_model))
        self.out_proj = nn.Linear(d_model, 2 * d_model)

    def flops(self, new: int, seen: int) -> int:
        if new == 1:  # state update and read; a complex product takes four real ones
            return 8 * self.d_model * self.d_state
        size = min(CHUNK, new)
        chunks = -(-new // size) * size * (2 * self.d_state + size)
        return 2 * self.d_model * (chunks + size * self.d_state)  # plus the final state

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        with without_autocast(x):
            y, h = self.in_chunks(at_least_float32(x), self._entries(state), length)  # y (B, T, D), h (B, D, N)
        return self._output(y, x), self._state(h)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        with without_autocast(x_t):
            h = _advance(at_least_float32(x_t), self._entries(state), self._power(1), self._gain())  # (B, D, N) each
            return self._output(self._read(h), x_t), self._state(h)

    def state_spec(self) -> StateSpec:
        dims = (self.d_model, self.d_state // 2)
        return StateEntry("h_real", dims), StateEntry("h_imag", dims)

    def _entries(self, state: State) -> Pair:
        return at_least_float32(state["h_real"]), at_least_float32(state["h_imag"])

    def _state(self, h: Pair) -> State:
        return {"h_real": h[0].to(self.skip.dtype), "h_imag": h[1].to(self.skip.dtype)}

    def _power(self, steps: Tensor | int) -> Pair:
        """exp(steps dt A): (D, N) each part, after the dimensions of `steps` (..., 1, 1)."""
        dt, decay, frequency = self._rates()
        radius, angle = torch.exp(-steps * dt * decay), steps * dt * frequency
        return self._pair(radius * angle.cos(), radius * angle.sin())

    def _gain(self) -> Pair:
        """(exp(dt A) - 1)/A, (D, N) each part, computed without cancellation near 0."""
        dt, decay, frequency = self._rates()
        angle, shrink = dt * frequency, expm1(-dt * decay)
        real, imag = shrink * angle.cos() - 2 * (angle / 2).sin() ** 2, (shrink + 1) * angle.sin()
        square = decay**2 + frequency**2
        return self._pair((imag * frequency - real * decay) / square, (-real * frequency - imag * decay) / square)

    def _rates(self) -> tuple[Tensor, Tensor, Tensor]:
        """dt (D, 1), the negated real part of A (D, N) and its imaginary part (D, N)."""
        parameters = map(raised, (self.log_dt, self.log_decay, self.frequency))
        log_dt, log_decay, frequency = map(at_least_float32, parameters)
        return log_dt.exp().unsqueeze(-1), log_decay.exp(), frequency

    def _pair(self, real: Tensor, imag: Tensor) -> Pair:
        """Converts both parts to the parameters' dtype, at least float32."""
        dtype = torch.promote_types(self.skip.dtype, torch.float32)
        return real.to(dtype), imag.to(dtype)

    def _read(self, h: Pair) -> Tensor:
        """2 Re(C h): (..., D, N) to (..., D)."""
        return 2 * (self.c_real * h[0] - self.c_imag * h[1]).sum(dim=-1)

    def _output(self, y: Tensor, x: Tensor) -> Tensor:
        mixed: Tensor = self.out_proj(F.gelu(y.to(x.dtype) + self.skip * x))
        return F.glu(mixed, dim=-1)

    def step_by_step(self, x: Tensor, h: Pair, length: Tensor | None) -> tuple[Tensor, Pair]:
        """Sequential reference version of `in_chunks`."""
        real = torch.ones_like(x[..., :1], dtype=torch.bool) if length is None else is_real(x, length)
        power, gain = self._power(1), self._gain()

        def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
            x_t, real_t = now
            new = _advance(x_t, (carry[0], carry[1]), power, gain)
            kept = (torch.where(real_t.unsqueeze(-1), n, old) for n, old in zip(new, carry, strict=True))
            return tuple(kept), self._read(new)

        y, last = scan_over_time(step, h, (x, real))
        return y, (last[0], last[1])

    @operation
    def in_chunks(self, x: Tensor, h0: Pair, length: Tensor | None) -> tuple[Tensor, Pair]:
        """Output y (B, T, D) for x in at least float32, whose rows have `length` (B,) inputs, and the last state."""
        batch_size, total, width = x.shape
        size = min(CHUNK, total)
        chunks = -(-total // size)
        if length is None:
            length = torch.full((batch_size,), total, device=x.device)
        x = F.pad(torch.where(is_real(x, length), x, 0.0), (0, 0, 0, chunks * size - total))  # (B, C L, D)
        by_channel = x.view(batch_size * chunks, size, width).permute(2, 0, 1)  # (D, B C, L)
        power = self._power(torch.arange(size + 1, device=x.device).view(-1, 1, 1))  # (L + 1, D, N) each
        # Contribution of an input to the state k steps later; multiplied by C, to the output.
        response = complex_product(self._gain(), (power[0][:-1], power[1][:-1]))  # (L, D, N) each
        to_end = torch.cat(response, dim=-1).flip(0).transpose(0, 1)  # (D, L, 2 N)

        ends = torch.bmm(by_channel, to_end).view(width, batch_size, chunks, -1).permute(1, 2, 0, 3)  # (B, C, D, 2 N)
        real, imag = (part.flatten(2) for part in ends.chunk(2, dim=-1))  # (B, C, D N) each
        decay = (power[0][-1].flatten().expand_as(real), power[1][-1].flatten().expand_as(imag))  # (B, C, D N) each
        after = complex_scan(decay, (real, imag), (h0[0].flatten(1), h0[1].flatten(1)))  # (B, C, D N) each
        starts = [
            torch.cat((first.unsqueeze(1), later[:, :-1].view(batch_size, chunks - 1, width, self.d_state // 2)), dim=1)
            for first, later in zip(h0, after, strict=True)
        ]  # (B, C, D, N) each part

        past = torch.arange(size, device=x.device) - torch.arange(size, device=x.device).unsqueeze(1)  # (L, L)
        inside = torch.where(past >= 0, self._read(response).t()[:, past.clamp(min=0)], 0.0)  # (D, L from, L to)
        before = torch.cat(starts, dim=-1).permute(2, 0, 1, 3).reshape(width, batch_size * chunks, -1)  # (D, B C, 2 N)
        c_power = complex_product((self.c_real, self.c_imag), (power[0][1:], power[1][1:]))  # (L, D, N) each
        y = torch.bmm(by_channel, inside)  # (D, B C, L)
        y = y + torch.bmm(before, 2 * torch.cat((c_power[0], -c_power[1]), dim=-1).permute(1, 2, 0))
        y = y.permute(1, 2, 0).reshape(batch_size, chunks * size, width)[:, :total]  # (B, T, D)

        # Final state of each row: the state at the start of its last chunk, and the inputs since then.
        chunk = (length - 1).clamp(min=0) // size  # (B,)
        since = length - chunk * size  # (B,)
        place = torch.arange(-size, 0, device=x.device) + length.unsqueeze(1)  # (B, L)
        last = x.gather(1, place.clamp(min=0).unsqueeze(-1).expand(-1, -1, width))  # (B, L, D)
        last = torch.where((place >= (chunk * size).unsqueeze(1)).unsqueeze(-1), last, 0.0)
        added = torch.einsum("bld,dln->bdn", last, to_end).chunk(2, dim=-1)  # (B, D, N) each
        row = torch.arange(batch_size, device=x.device)
        start = (starts[0][row, chunk], starts[1][row, chunk])  # (B, D, N) each
        return y, complex_step(self._power(since.view(-1, 1, 1)), (added[0], added[1]), start)


def _advance(x_t: Tensor, h: Pair, power: Pair, gain: Pair) -> Pair:
    """The state (B, D, N) after x_t (B, D)."""
    return complex_step(power, (gain[0] * x_t.unsqueeze(-1), gain[1] * x_t.unsqueeze(-1)), h)
