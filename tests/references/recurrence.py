"""Recurrent networks as their equations, one row and one step at a time, in float64. A pad is the identity.

Weights carry the names of PyTorch's layers, whose rows stack the gates: (r, z, n) for GRU, (i, f, g, o) for LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Carry = tuple[Tensor, ...]


def rnn(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Elman 1990: h_t = tanh(W x_t + b + U h_{t-1} + c). x (B, T, D), real (B, T); zeros at pads."""

    def step(x_t: Tensor, carry: Carry) -> Carry:
        (h,) = carry
        return (torch.tanh(_gate(weights, "ih", x_t, 0, 1) + _gate(weights, "hh", h, 0, 1)),)

    return _unroll(step, x, real, 1)


def gru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Cho et al. 2014, with the reset gate after the recurrent product (as cuDNN): n_t = tanh(W_n x_t + b_n +
    r_t * (U_n h_{t-1} + c_n)), h_t = (1 - z_t) * n_t + z_t * h_{t-1}. x (B, T, D), real (B, T); zeros at pads."""

    def step(x_t: Tensor, carry: Carry) -> Carry:
        (h,) = carry
        r = torch.sigmoid(_gate(weights, "ih", x_t, 0, 3) + _gate(weights, "hh", h, 0, 3))
        z = torch.sigmoid(_gate(weights, "ih", x_t, 1, 3) + _gate(weights, "hh", h, 1, 3))
        n = torch.tanh(_gate(weights, "ih", x_t, 2, 3) + r * _gate(weights, "hh", h, 2, 3))
        return ((1 - z) * n + z * h,)

    return _unroll(step, x, real, 1)


def lstm(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Gers et al. 2000: c_t = f_t * c_{t-1} + i_t * g_t, h_t = o_t * tanh(c_t). x (B, T, D), real (B, T); zeros at
    pads."""

    def step(x_t: Tensor, carry: Carry) -> Carry:
        h, c = carry
        i, f, g, o = (_gate(weights, "ih", x_t, gate, 4) + _gate(weights, "hh", h, gate, 4) for gate in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    return _unroll(step, x, real, 2)


def _gate(weights: Weights, side: str, x: Tensor, gate: int, num_gates: int) -> Tensor:
    """The part of W x + b that belongs to one gate."""
    weight = weights[f"cell.weight_{side}_l0"].chunk(num_gates)[gate]
    bias = weights[f"cell.bias_{side}_l0"].chunk(num_gates)[gate]
    return weight @ x + bias


def _unroll(step: Callable[[Tensor, Carry], Carry], x: Tensor, real: Tensor, num_entries: int) -> Tensor:
    """Runs `step` over the real tokens of each row from a carry of zeros, whose first entry is the output."""
    rows = []
    for row in range(len(x)):
        zero = torch.zeros_like(x[row, 0])
        carry: Carry = (zero,) * num_entries
        outputs = [zero] * x.shape[1]
        for t in range(x.shape[1]):
            if real[row, t]:
                carry = step(x[row, t], carry)
                outputs[t] = carry[0]
        rows.append(torch.stack(outputs))
    return torch.stack(rows)
