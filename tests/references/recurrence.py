"""Recurrent networks as their equations, one row and one step at a time, in float64. A pad is the identity.

Weights carry the names of PyTorch's layers, whose rows stack the gates: (r, z, n) for GRU, (i, f, g, o) for LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Carry = tuple[Tensor, ...]


def rnn(weights: Weights, x: Tensor, real: Tensor, *_: object, relu: bool = False) -> Tensor:
    """Elman 1990: h_t = tanh(W x_t + b + U h_{t-1} + c), or relu. x (B, T, D), real (B, T); zeros at pads."""

    def step(x_t: Tensor, carry: Carry, place: str) -> Carry:
        (h,) = carry
        total = _gate(weights, "ih", place, x_t, 0, 1) + _gate(weights, "hh", place, h, 0, 1)
        return (torch.clamp(total, min=0) if relu else torch.tanh(total),)

    return _unroll(step, weights, x, real, 1)


def gru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Cho et al. 2014, with the reset gate after the recurrent product (as cuDNN): n_t = tanh(W_n x_t + b_n +
    r_t * (U_n h_{t-1} + c_n)), h_t = (1 - z_t) * n_t + z_t * h_{t-1}. x (B, T, D), real (B, T); zeros at pads."""

    def step(x_t: Tensor, carry: Carry, place: str) -> Carry:
        (h,) = carry
        r = torch.sigmoid(_gate(weights, "ih", place, x_t, 0, 3) + _gate(weights, "hh", place, h, 0, 3))
        z = torch.sigmoid(_gate(weights, "ih", place, x_t, 1, 3) + _gate(weights, "hh", place, h, 1, 3))
        n = torch.tanh(_gate(weights, "ih", place, x_t, 2, 3) + r * _gate(weights, "hh", place, h, 2, 3))
        return ((1 - z) * n + z * h,)

    return _unroll(step, weights, x, real, 1)


def lstm(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Gers et al. 2000: c_t = f_t * c_{t-1} + i_t * g_t, h_t = o_t * tanh(c_t). x (B, T, D), real (B, T); zeros at
    pads."""

    def step(x_t: Tensor, carry: Carry, place: str) -> Carry:
        h, c = carry
        i, f, g, o = (
            _gate(weights, "ih", place, x_t, gate, 4) + _gate(weights, "hh", place, h, gate, 4) for gate in range(4)
        )
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    return _unroll(step, weights, x, real, 2)


def _gate(weights: Weights, side: str, place: str, x: Tensor, gate: int, num_gates: int) -> Tensor:
    """The part of W x + b that belongs to one gate; `place` is the layer and the direction."""
    weight = weights[f"cell.weight_{side}_{place}"].chunk(num_gates)[gate]
    bias = weights[f"cell.bias_{side}_{place}"].chunk(num_gates)[gate]
    return weight @ x + bias


def _unroll(
    step: Callable[[Tensor, Carry, str], Carry], weights: Weights, x: Tensor, real: Tensor, num_entries: int
) -> Tensor:
    """Runs `step` over the real tokens of each row, layer upon layer, from carries of zeros whose first entry is the
    output. A direction of its own (Schuster & Paliwal 1997) reads from the end, and stands beside the first."""
    places = [name.removeprefix("cell.weight_hh_") for name in weights if name.startswith("cell.weight_hh_")]
    rows = []
    for row in range(len(x)):
        vectors = list(x[row, real[row]])
        for layer in range(sum("reverse" not in place for place in places)):
            read = []
            for place in (place for place in places if place.split("_")[0] == f"l{layer}"):
                zero = torch.zeros(weights[f"cell.weight_hh_{place}"].shape[1], dtype=x.dtype)
                carry: Carry = (zero,) * num_entries
                outputs = []
                for x_t in reversed(vectors) if "reverse" in place else vectors:
                    carry = step(x_t, carry, place)
                    outputs.append(carry[0])
                read.append(outputs[::-1] if "reverse" in place else outputs)
            vectors = [torch.cat(parts) for parts in zip(*read, strict=True)]
        of_real = iter(vectors)
        rows.append(torch.stack([next(of_real) if kept else torch.zeros_like(x[row, 0]) for kept in real[row]]))
    return torch.stack(rows)
