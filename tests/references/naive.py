"""Building blocks of the reference recurrences: one vector at a time, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def swish(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """W x, and + b where there is one."""
    y = weights[f"{name}.weight"] @ x
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def group_norm(weights: Weights, x: Tensor, head: int, eps: float) -> Tensor:
    """Mean 0 and variance 1 over x (V,) of one head, then its scale and, where there is one, its shift."""
    centred = x - x.mean()
    y = centred / torch.sqrt((centred * centred).mean() + eps) * weights["head_norm.weight"][head]
    return y + weights["head_norm.bias"][head] if "head_norm.bias" in weights else y


def in_rows(row: Callable[[list[Tensor]], list[Tensor]], x: Tensor, real: Tensor) -> Tensor:
    """`row` over the real vectors of each row of x (B, T, D), put back in their places, and zeros at pads."""
    y = []
    for b in range(len(x)):
        places = real[b].nonzero()[:, 0].tolist()
        outputs = [torch.zeros_like(x[b, 0])] * x.shape[1]
        for place, output in zip(places, row([x[b, place] for place in places]), strict=True):
            outputs[place] = output
        y.append(torch.stack(outputs))
    return torch.stack(y)
