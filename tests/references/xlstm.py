"""The cells of xLSTM (Beck et al. 2024) as their equations, not stabilised, one row and one step at a time, in float64.

A pad is the identity. Called with the mixer's parameters, x (B, T, D), which tokens are real (B, T), and the naive
encoding; they return (B, T, D), zeros at pads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.naive import Weights, group_norm, in_rows, linear, sigmoid


def mlstm(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Equations 19-27, C being V x K; then the norm of each head, the output gate, and the projection."""

    def row(vectors: list[Tensor]) -> list[Tensor]:
        outputs = []
        c = [torch.zeros(1, 1, dtype=x.dtype)] * num_heads
        n = [torch.zeros(1, dtype=x.dtype)] * num_heads
        for x_t in vectors:
            q, k, v = (linear(weights, name, x_t).chunk(num_heads) for name in ("q_proj", "k_proj", "v_proj"))
            i = torch.exp(linear(weights, "in_gate_proj", x_t) + weights["in_gate_bias"])
            f = sigmoid(linear(weights, "forget_gate_proj", x_t) + weights["forget_gate_bias"])
            heads = []
            for h in range(num_heads):
                key = k[h] / math.sqrt(len(k[h]))
                c[h] = f[h] * c[h] + i[h] * torch.outer(v[h], key)
                n[h] = f[h] * n[h] + i[h] * key
                heads.append(group_norm(weights, c[h] @ q[h] / torch.clamp((n[h] @ q[h]).abs(), min=1), h, 1e-5))
            gated = sigmoid(linear(weights, "gate_proj", x_t)) * torch.cat(heads)
            outputs.append(linear(weights, "out_proj", gated))
        return outputs

    return in_rows(row, x, real)


def slstm(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Equations 8-14, the exponential gate for the input and a sigmoid to forget; then the norm of each head."""

    def row(vectors: list[Tensor]) -> list[Tensor]:
        zeros = torch.zeros(len(x[0, 0]) // num_heads, dtype=x.dtype)
        h, c, n = [zeros] * num_heads, [zeros] * num_heads, [zeros] * num_heads
        outputs = []
        for x_t in vectors:
            given = linear(weights, "in_proj", x_t).chunk(num_heads)
            heads = []
            for head in range(num_heads):
                raw = given[head] + h[head] @ weights["feedback_weight"][head] + weights["bias"][head].flatten()
                z, i, f, o = raw.chunk(4)
                c[head] = sigmoid(f) * c[head] + torch.exp(i) * torch.tanh(z)
                n[head] = sigmoid(f) * n[head] + torch.exp(i)
                h[head] = sigmoid(o) * c[head] / n[head]
                heads.append(group_norm(weights, h[head], head, 1e-5))
            outputs.append(torch.cat(heads))
        return outputs

    return in_rows(row, x, real)
