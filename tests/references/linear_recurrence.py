"""Linear recurrences and windows as their papers' equations, one row and one step at a time, in float64.

A row is computed from its real tokens alone; pads get zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from references.positions import NaiveEncoding

Weights = Mapping[str, Tensor]


def min_gru(weights: Weights, x: Tensor, real: Tensor, encoding: NaiveEncoding) -> Tensor:
    """Feng et al. 2024, section 3.1.3: z_t = sigmoid(Linear(x_t)), h~_t = Linear(x_t),
    h_t = (1 - z_t) * h_{t-1} + z_t * h~_t. x (B, T, D), real (B, T)."""

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros(len(weights["out_proj.weight"][0]), dtype=torch.float64), []
        for x_t in tokens:
            z, candidate = _linear(weights, "in_proj", x_t).chunk(2)
            z = 1 / (1 + torch.exp(-z))
            h = (1 - z) * h + z * candidate
            outputs.append(_linear(weights, "out_proj", h))
        return outputs

    return _by_row(row, x, real)


def min_lstm(weights: Weights, x: Tensor, real: Tensor, encoding: NaiveEncoding) -> Tensor:
    """Feng et al. 2024, section 3.2.3: f_t, i_t = sigmoid(Linear(x_t)), f' = f/(f + i), i' = i/(f + i),
    h_t = f' * h_{t-1} + i' * h~_t. x (B, T, D), real (B, T)."""

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros(len(weights["out_proj.weight"][0]), dtype=torch.float64), []
        for x_t in tokens:
            f, i, candidate = _linear(weights, "in_proj", x_t).chunk(3)
            f, i = 1 / (1 + torch.exp(-f)), 1 / (1 + torch.exp(-i))
            h = f / (f + i) * h + i / (f + i) * candidate
            outputs.append(_linear(weights, "out_proj", h))
        return outputs

    return _by_row(row, x, real)


def lru(weights: Weights, x: Tensor, real: Tensor, encoding: NaiveEncoding) -> Tensor:
    """Orvieto et al. 2023, appendix A: lambda = exp(-exp(nu) + i exp(theta)); h_t = lambda h_{t-1} + gamma B x_t;
    y_t = Re(C h_t) + D x_t. x (B, T, D), real (B, T)."""
    decay = torch.exp(torch.complex(-torch.exp(weights["nu_log"]), torch.exp(weights["theta_log"])))
    b = torch.complex(*weights["in_proj.weight"].chunk(2, dim=0))
    c_real, minus_c_imag = weights["out_proj.weight"].chunk(2, dim=1)
    c = torch.complex(c_real, -minus_c_imag)

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros_like(decay), []
        for x_t in tokens:
            h = decay * h + torch.exp(weights["gamma_log"]) * (b @ x_t.to(b.dtype))
            outputs.append((c @ h).real + weights["skip"] * x_t)
        return outputs

    return _by_row(row, x, real)


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    y = weights[f"{name}.weight"] @ x
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _by_row(row: Callable[[Tensor], list[Tensor]], x: Tensor, real: Tensor) -> Tensor:
    """(B, T, D): `row` over the real tokens of each row, zeros elsewhere."""
    rows = []
    for tokens, kept in zip(x, real, strict=True):
        outputs = iter(row(tokens[kept]))
        rows.append(torch.stack([next(outputs) if is_real else torch.zeros_like(tokens[0]) for is_real in kept]))
    return torch.stack(rows)
