"""RWKV-7 as its paper's equations, one row, one head and one step at a time, in float64. A pad is the identity."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.naive import Weights, group_norm, in_rows, linear, sigmoid


def rwkv7(weights: Weights, x: Tensor, real: Tensor, *_: object, head_dim: int) -> Tensor:
    """Peng et al. 2025, equations 3-22 without the mix of values across layers, wkv being V x K. x (B, T, D), real
    (B, T); zeros at pads."""

    def row(vectors: list[Tensor]) -> list[Tensor]:
        num_heads = len(vectors[0]) // head_dim if vectors else 0
        wkv = [torch.zeros(head_dim, head_dim, dtype=x.dtype)] * num_heads
        before, outputs = torch.zeros_like(x[0, 0]), []
        for x_t in vectors:
            x_r, x_w, x_k, x_v, x_a, x_g = ((1 - mu) * x_t + mu * before for mu in weights["shift_mix"])
            before = x_t
            r, k, v = linear(weights, "r_proj", x_r), linear(weights, "k_proj", x_k), linear(weights, "v_proj", x_v)
            d = weights["decay_bias"] + linear(weights, "decay_up", torch.tanh(linear(weights, "decay_down", x_w)))
            w = torch.exp(-math.exp(-0.5) * sigmoid(d))
            a = sigmoid(weights["rate_bias"] + linear(weights, "rate_up", linear(weights, "rate_down", x_a)))
            g = linear(weights, "gate_up", sigmoid(linear(weights, "gate_down", x_g)))
            kappa = k * weights["removal_scale"]
            k = k * ((1 - weights["rate_scale"]) + weights["rate_scale"] * a)
            heads = []
            for h in range(num_heads):
                r_h, w_h, k_h, v_h, a_h, kappa_h = (y.split(head_dim)[h] for y in (r, w, k, v, a, kappa))
                kappa_h = kappa_h / torch.sqrt(kappa_h @ kappa_h)
                wkv[h] = wkv[h] @ (torch.diag(w_h) - torch.outer(kappa_h, a_h * kappa_h)) + torch.outer(v_h, k_h)
                bonus = (r_h @ (weights["bonus"][h] * k_h)) * v_h
                heads.append(group_norm(weights, wkv[h] @ r_h, h, 1e-5 * head_dim) + bonus)
            outputs.append(linear(weights, "out_proj", g * torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)
