"""Building blocks of the references: one row, one vector at a time, in float64.

A reference of a mixer is called with its parameters, x (B, T, D), which tokens are real (B, T), the naive encoding and
that one's parameters. A pad is not there: it gets zeros. A number as the initial state stands for a tensor full of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def swish(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def softmax(scores: Tensor) -> Tensor:
    return torch.exp(scores) / torch.exp(scores).sum()


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """W x, and + b where there is one, of one vector or of each row of a matrix."""
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def rms_norm(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps)


def group_norm(weights: Weights, x: Tensor, head: int, eps: float) -> Tensor:
    """Mean 0 and variance 1 over x (V,) of one head, then its scale and, where there is one, its shift."""
    centred = x - x.mean()
    y = centred / torch.sqrt((centred * centred).mean() + eps) * weights["head_norm.weight"][head]
    return y + weights["head_norm.bias"][head] if "head_norm.bias" in weights else y


def short_conv(weights: Weights, inputs: list[Tensor]) -> list[Tensor]:
    """y_t = sum_w weight_w x_{t - W + 1 + w} + bias, channel by channel, zeros before the start."""
    kernel, outputs = weights["conv.conv.weight"][:, 0], []
    width = kernel.shape[1]
    for t in range(len(inputs)):
        y = weights.get("conv.conv.bias", torch.zeros_like(inputs[0]))
        for w in range(max(0, width - 1 - t), width):
            y = y + kernel[:, w] * inputs[t - width + 1 + w]
        outputs.append(y)
    return outputs


def in_rows(row: Callable[[list[Tensor]], list[Tensor]], x: Tensor, real: Tensor) -> Tensor:
    """`row` over the real vectors of each row of x (B, T, D), put back in their places, and zeros at pads."""
    y = []
    for vectors, kept in zip(x, real, strict=True):
        outputs = iter(row(list(vectors[kept])))
        y.append(torch.stack([next(outputs) if is_real else torch.zeros_like(vectors[0]) for is_real in kept]))
    return torch.stack(y)


def unrolled(step: Callable[[Any, Any], tuple[Any, Tensor]], start: Any, inputs: Iterable[Any]) -> list[Tensor]:
    """The outputs of a recurrence: `step` makes of a state and an input the next state and an output."""
    outputs = []
    for x_t in inputs:
        start, y = step(start, x_t)
        outputs.append(y)
    return outputs


def in_steps(step: Callable[[Any, Tensor], tuple[Any, Tensor]], start: Any, x: Tensor, real: Tensor) -> Tensor:
    """`unrolled` over the real vectors of each row of x (B, T, D), and zeros at pads."""
    return in_rows(lambda vectors: unrolled(step, start, vectors), x, real)
