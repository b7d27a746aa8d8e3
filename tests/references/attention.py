"""Softmax attention as its paper writes it, one query at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from references.positions import NaiveEncoding
from torch import Tensor


def softmax_attention(
    weights: Mapping[str, Tensor],
    x: Tensor,
    real: Tensor,
    encoding: NaiveEncoding,
    *,
    num_heads: int,
    num_kv_heads: int,
    causal: bool,
) -> Tensor:
    """Vaswani et al. 2017, section 3.2: head = softmax(q k^T / sqrt(d_k)) v, their concatenation times W^O.

    Query head h reads key-value head h // (num_heads / num_kv_heads) (Ainslie et al. 2023, figure 2).

    Args:
        weights: `{q,k,v,out}_proj.weight` and, where there are any, `.bias`.
        x: (B, T, D) float64.
        real: (B, T) bool; what is not real is neither attended to nor computed.
        encoding: rotates queries and keys, and biases scores.

    Returns:
        (B, T, D), zeros at pads.
    """
    head_dim = x.shape[-1] // num_heads
    rows = []
    for row in range(len(x)):
        tokens = [t for t in range(x.shape[1]) if real[row, t]]
        q, k, v = (_project(weights, name, x[row], head_dim) for name in ("q_proj", "k_proj", "v_proj"))
        rotated_q = _rotate(q, tokens, encoding)
        rotated_k = _rotate(k, tokens, encoding)
        outputs = [torch.zeros_like(x[row, 0])] * x.shape[1]
        for position, t in enumerate(tokens):
            seen = position + 1 if causal else len(tokens)
            heads = []
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                bias = [encoding.bias(head, num_heads, position, j) for j in range(seen)]
                scores = rotated_k[kv_head][:seen] @ rotated_q[head][position] / math.sqrt(head_dim)
                exp = torch.exp(scores + torch.tensor(bias, dtype=torch.float64))
                values = v[tokens[:seen], kv_head]
                heads.append((exp / exp.sum()) @ values)
            outputs[t] = _linear(weights, "out_proj", torch.cat(heads))
        rows.append(torch.stack(outputs))
    return torch.stack(rows)


def _linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _project(weights: Mapping[str, Tensor], name: str, x: Tensor, head_dim: int) -> Tensor:
    """(T, heads, K)"""
    return _linear(weights, name, x).unflatten(-1, (-1, head_dim))


def _rotate(x: Tensor, tokens: list[int], encoding: NaiveEncoding) -> list[Tensor]:
    """For each head, (number of real tokens, K): the vectors of x (T, heads, K) at positions 0, 1, ..."""
    return [
        torch.stack([encoding.rotate(x[t, head], position) for position, t in enumerate(tokens)])
        for head in range(x.shape[1])
    ]
