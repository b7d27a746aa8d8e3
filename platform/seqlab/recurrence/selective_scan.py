"""The scan of a selective state space model (Gu & Dao 2023, algorithm 2 and section 3.3.2). Its states (B, T, E, N) are
never all in memory: they are computed and discarded chunk by chunk, and recomputed in the backward pass.

B batch, T length, E channels, N states of a channel, L steps of a chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqlab.nn.operation import operation
from seqlab.nn.scan import Carry, scan_over_time
from seqlab.recurrence.linear_scan import linear_scan, reverse_scan

_CHUNK = 128


def selective_step(h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h' = exp(dt decay) * h + dt u B and C h'.

    Args:
        h: (B, E, N).
        decay: (E, N), at most 0.
        u, dt: (B, E).
        b, c: (B, N).

    Returns:
        C h' (B, E) and h' (B, E, N).
    """
    h = torch.exp(dt.unsqueeze(-1) * decay) * h + (dt * u).unsqueeze(-1) * b.unsqueeze(-2)  # (B, E, N)
    return (h * c.unsqueeze(-2)).sum(dim=-1), h  # (B, E), (B, E, N)


@operation
def selective_scan(h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """`selective_step` over time: u and dt (B, T, E), b and c (B, T, N) give every C h_t (B, T, E) and the last h."""
    y, h, _ = _scan(h, decay, u, dt, b, c)
    return y, h


def selective_step_by_step(
    h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """Sequential reference version of `selective_scan`."""

    def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        y, h = selective_step(carry[0], decay, now[0], now[1], now[2], now[3])
        return (h,), y

    y, (last,) = scan_over_time(step, (h,), (u, dt, b, c))
    return y, last


@torch.library.custom_op("seqlab::selective_scan", mutates_args=())
def _scan(h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every C h_t, the last h, and the h before each chunk, (B, M, E, N)."""
    y, starts = torch.empty_like(u), []
    for begin in range(0, u.shape[1], _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        starts.append(h)
        _, states = _states(h, decay, u[:, chunk], dt[:, chunk], b[:, chunk])  # (B, L, E, N)
        y[:, chunk] = torch.matmul(states, c[:, chunk].unsqueeze(-1)).squeeze(-1)  # (B, L, E)
        h = states[:, -1].clone()  # (B, E, N)
    return y, h, torch.stack(starts, dim=1)


@_scan.register_fake
def _shapes(h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    chunks = (u.shape[1] + _CHUNK - 1) // _CHUNK
    return torch.empty_like(u), h.new_empty(h.shape), h.new_empty(h.shape[0], chunks, *h.shape[1:])


@torch.library.custom_op("seqlab::selective_scan_backward", mutates_args=())
def _gradients(
    dy: Tensor, dh: Tensor, starts: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor
) -> list[Tensor]:
    """The gradient of each input of `_scan`."""
    inputs = (u, dt, b, c)
    d_decay = torch.zeros_like(decay)
    found = [torch.empty_like(x) for x in inputs]
    for number in range(starts.shape[1] - 1, -1, -1):
        chunk, start = slice(number * _CHUNK, (number + 1) * _CHUNK), starts[:, number]
        u, dt, b, c = (x[:, chunk] for x in inputs)  # u and dt (B, L, E), b and c (B, L, N)
        dy_here = dy[:, chunk]
        factors, states = _states(start, decay, u, dt, b)  # (B, L, E, N) each
        before = torch.cat((start.unsqueeze(1), states[:, :-1]), dim=1)  # (B, L, E, N)
        # Gradient of the loss by each state, through its own output and through later states.
        g = dy_here.unsqueeze(-1) * c.unsqueeze(2)  # (B, L, E, N)
        g[:, -1] += dh
        g = reverse_scan(factors.flatten(2), g.flatten(2)).view_as(g)  # scanned as (B, L, E N)
        dh = factors[:, 0] * g[:, 0]  # (B, E, N)
        d_exponent = before.mul_(g).mul_(factors)
        d_input = torch.matmul(g, b.unsqueeze(-1)).squeeze(-1)  # of dt u
        d_decay += (d_exponent * dt.unsqueeze(-1)).sum(dim=(0, 1))
        found[0][:, chunk] = d_input * dt
        found[1][:, chunk] = d_input * u + d_exponent.mul_(decay).sum(dim=-1)
        found[2][:, chunk] = torch.matmul((dt * u).unsqueeze(2), g).squeeze(2)
        found[3][:, chunk] = torch.matmul(dy_here.unsqueeze(2), states).squeeze(2)
    return [dh, d_decay, *found]


@_gradients.register_fake
def _shapes_of_gradients(
    dy: Tensor, dh: Tensor, starts: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor, c: Tensor
) -> list[Tensor]:
    return [dh.new_empty(dh.shape), *(torch.empty_like(x) for x in (decay, u, dt, b, c))]


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[2], *inputs[1:])


def _backward(ctx: Any, dy: Tensor, dh: Tensor, _: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(_gradients(dy, dh, *ctx.saved_tensors))


_scan.register_autograd(_backward, setup_context=_save)


def _states(h: Tensor, decay: Tensor, u: Tensor, dt: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The factors exp(dt decay) and the states of a chunk, (B, L, E, N) each."""
    factors = (dt.unsqueeze(-1) * decay).exp_()
    inputs = (dt * u).unsqueeze(-1) * b.unsqueeze(2)
    return factors, linear_scan(factors.flatten(2), inputs.flatten(2), h.flatten(1)).view_as(factors)
