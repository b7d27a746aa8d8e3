"""A mixture of experts as its equations, one token and one expert at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from references.naive import Weights, linear, sigmoid, softmax, swish


def mixture_of_experts(weights: Weights, x: Tensor, top_k: int, router: str, biases: Tensor) -> Tensor:
    """Outputs (N, D) for tokens x (N, D); `biases` (E,) are added to the affinities for the choice alone."""
    return torch.stack([_token(weights, token, top_k, router, biases) for token in x])


def _token(weights: Weights, x: Tensor, top_k: int, router: str, biases: Tensor) -> Tensor:
    scores = linear(weights, "router", x)
    affinities = softmax(scores) if router == "softmax" else sigmoid(scores)
    chosen = sorted(range(len(scores)), key=lambda e: -(affinities[e] + biases[e]).item())[:top_k]
    total = sum((affinities[e] for e in chosen), torch.zeros_like(scores[0]))
    y = torch.zeros_like(x)
    for e in chosen:
        gate, up, down = (weights[f"{name}_proj.weight"][e] for name in ("gate", "up", "down"))
        y = y + (affinities[e] / total if top_k > 1 else affinities[e]) * (down @ (swish(gate @ x) * (up @ x)))
    if "shared.up_proj.weight" in weights:
        inner = swish(linear(weights, "shared.gate_proj", x)) * linear(weights, "shared.up_proj", x)
        y = y + linear(weights, "shared.down_proj", inner)
    return y
