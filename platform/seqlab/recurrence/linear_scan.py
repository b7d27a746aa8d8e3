"""The first-order diagonal recurrence h_t = a_t * h_{t-1} + b_t over whole sequences.

Chunks of about sqrt(T/2) steps advance side by side (Blelloch 1990): a sequence costs O(T) work in about 2 sqrt(2 T)
vector operations. It multiplies and adds, and never divides or takes a logarithm: it is exact for any a, 0 and
negative ones too. To `torch.compile` it is one operator, whatever the length.

B batch, T length, D channels, C chunks, L steps of a chunk.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seqlab.nn.operation import operation
from seqlab.nn.scan import Carry, scan_over_time

Pair = tuple[Tensor, Tensor]
"""A complex number as its real and its imaginary part."""


@operation
def linear_scan(a: Tensor, b: Tensor, h0: Tensor) -> Tensor:
    """Every h_t of h_t = a_t * h_{t-1} + b_t, in at least float32.

    Args:
        a: (B, T, D) factors; 1, with b = 0, makes a step the identity.
        b: (B, T, D) inputs.
        h0: (B, D), before the first step.

    Returns:
        (B, T, D); gradients reach all three.
    """
    dtype = _at_least_float32(a, b, h0)
    h: Tensor = _scan(a.to(dtype), b.to(dtype), h0.to(dtype))
    return h


def linear_step_by_step(a: Tensor, b: Tensor, h0: Tensor) -> Tensor:
    """Sequential reference version of `linear_scan`."""
    dtype = _at_least_float32(a, b, h0)

    def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        h = now[0] * carry[0] + now[1]
        return (h,), h

    return scan_over_time(step, (h0.to(dtype),), (a.to(dtype), b.to(dtype)))[0]


@operation
def complex_scan(a: Pair, b: Pair, h0: Pair) -> Pair:
    """`linear_scan` for complex numbers, each a pair of real tensors with the same shapes."""
    dtype = _at_least_float32(*a, *b, *h0)
    h: Tensor = _scan(*(torch.complex(pair[0].to(dtype), pair[1].to(dtype)) for pair in (a, b, h0)))
    return h.real, h.imag


def complex_step_by_step(a: Pair, b: Pair, h0: Pair) -> Pair:
    """Sequential reference version of `complex_scan`."""

    def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
        h = complex_step((now[0], now[1]), (now[2], now[3]), (carry[0], carry[1]))
        return h, torch.cat(h, dim=-1)

    real, imag = scan_over_time(step, h0, (*a, *b))[0].chunk(2, dim=-1)  # (B, T, D) each
    return real, imag


def complex_step(a: Pair, b: Pair, h: Pair) -> Pair:
    """a * h + b of complex numbers."""
    real, imag = complex_product(a, h)
    return real + b[0], imag + b[1]


def complex_product(a: Pair, b: Pair) -> Pair:
    """a * b of complex numbers."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _at_least_float32(*tensors: Tensor) -> torch.dtype:
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def reverse_scan(a: Tensor, b: Tensor) -> Tensor:
    """Every g_t of g_t = b_t + a_{t+1} * g_{t+1}, from zeros after the end: a backward pass. Not differentiable."""
    a_next = torch.cat((a[:, 1:], torch.ones_like(a[:, :1])), dim=1).resolve_conj()
    g: Tensor = _reverse_scan(a_next, b)
    return g


@torch.library.custom_op("seqlab::linear_scan", mutates_args=())
def _scan(a: Tensor, b: Tensor, h0: Tensor) -> Tensor:
    return _in_chunks(a, b, h0)


@torch.library.custom_op("seqlab::reverse_linear_scan", mutates_args=())
def _reverse_scan(a: Tensor, b: Tensor) -> Tensor:
    return _in_chunks(a, b, torch.zeros_like(b[:, 0]), reverse=True)


@_scan.register_fake
@_reverse_scan.register_fake
def _shape(a: Tensor, b: Tensor, h0: Tensor | None = None) -> Tensor:
    return b.new_empty(b.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    a, _, h0 = inputs
    ctx.save_for_backward(a, h0, output)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient g_t = dy_t + a_{t+1} * g_{t+1}, which is the same scan in reverse."""
    a, h0, h = ctx.saved_tensors
    wants_a, wants_b, wants_h0 = ctx.needs_input_grad
    g = reverse_scan(a.conj(), dy)
    da = g * torch.cat((h0.unsqueeze(1), h[:, :-1]), dim=1).conj() if wants_a else None
    return da, g if wants_b else None, a[:, 0].conj() * g[:, 0] if wants_h0 else None


_scan.register_autograd(_backward, setup_context=_save)


def _in_chunks(a: Tensor, b: Tensor, h0: Tensor, *, reverse: bool = False) -> Tensor:
    """Every h_t, (B, T, D), scanning from the first step or, with `reverse`, from the last."""
    batch_size, length, width = b.shape
    # A power of two divides most lengths: then nothing is padded and copied.
    size = 1 << (math.isqrt(max(length // 2, 1)).bit_length() - 1)
    chunks = -(-length // size)
    if chunks * size != length:
        missing = (batch_size, chunks * size - length, width)
        a, b = torch.cat((a, a.new_ones(missing)), dim=1), torch.cat((b, b.new_zeros(missing)), dim=1)
    a, b = (x.reshape(batch_size, chunks, size, width) for x in (a, b))  # (B, C, L, D)
    steps = range(size - 1, -1, -1) if reverse else range(size)

    # End state of each chunk from a zero state; with the product of its factors it gives the end from any state.
    a_of, b_of = a.unbind(dim=2), b.unbind(dim=2)  # L of (B, C, D) each: step t of every chunk
    end = torch.zeros_like(b_of[0])  # (B, C, D)
    for t in steps:
        end = torch.addcmul(b_of[t], a_of[t], end)
    ends, factors = end.unbind(dim=1), a.prod(dim=2).unbind(dim=1)  # C of (B, D)
    starts = [h0] * chunks
    for chunk in range(chunks - 1, -1, -1) if reverse else range(chunks):
        starts[chunk] = h0
        h0 = torch.addcmul(ends[chunk], factors[chunk], h0)

    h, state = torch.empty_like(b), torch.stack(starts, dim=1)  # (B, C, L, D), (B, C, D)
    h_of = h.unbind(dim=2)  # L of (B, C, D) each
    for t in steps:
        state = torch.addcmul(b_of[t], a_of[t], state, out=h_of[t])
    return h.view(batch_size, chunks * size, width)[:, :length].contiguous()  # (B, T, D)
