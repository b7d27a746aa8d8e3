"""Softmax attention as its paper writes it, one query at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from references.positions import NaiveEncoding


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
    y = torch.zeros_like(x)
    for row in range(len(x)):
        vectors = x[row, real[row]]
        length = len(vectors)
        q, k, v = (_project(weights, name, vectors, head_dim) for name in ("q_proj", "k_proj", "v_proj"))
        q, k = (
            [torch.stack([encoding.rotate(head[t], t) for t in range(length)]) for head in heads] for heads in (q, k)
        )
        outputs = []
        for t in range(length):
            seen = t + 1 if causal else length
            heads = []
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                bias = [encoding.bias(head, num_heads, t, j) for j in range(seen)]
                scores = k[kv_head][:seen] @ q[head][t] / math.sqrt(head_dim)
                exp = torch.exp(scores + torch.tensor(bias, dtype=torch.float64))
                heads.append((exp / exp.sum()) @ v[kv_head][:seen])
            outputs.append(torch.cat(heads))
        places = (torch.tensor(row), real[row].nonzero()[:, 0])
        y = y.index_put(places, _linear(weights, "out_proj", torch.stack(outputs)))
    return y


def _linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _project(weights: Mapping[str, Tensor], name: str, x: Tensor, head_dim: int) -> tuple[Tensor, ...]:
    """x (T, D) as one (T, K) a head."""
    return _linear(weights, name, x).split(head_dim, dim=-1)
