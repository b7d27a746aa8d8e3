"""Softmax attention as its papers write it, one query at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from references.positions import NaiveEncoding

Weights = Mapping[str, Tensor]


def causal(t: int, j: int) -> bool:
    """Whether position t sees position j."""
    return j <= t


def softmax_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    encoding: NaiveEncoding,
    encoding_weights: Weights,
    *,
    num_heads: int,
    num_kv_heads: int,
    sees: Callable[[int, int], bool] = causal,
    scale: float | None = None,
    change: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Tensor:
    """Vaswani et al. 2017, section 3.2: head = softmax(q k^T / sqrt(d_k)) v, their concatenation times W^O.

    Query head h reads key-value head h // (num_heads / num_kv_heads) (Ainslie et al. 2023, figure 2). Where there are
    weights for them: queries and keys are normed, a sink takes a share of the softmax, the output is gated.

    Args:
        weights: `{q,k,v,out}_proj.weight` and, where there are any, `.bias`, and those of the parts.
        x: (B, T, D) float64.
        real: (B, T) bool; what is not real is neither attended to nor computed.
        encoding: rotates queries and keys, biases scores, and adds to values.
        change: what becomes of the scores of one query in one head.

    Returns:
        (B, T, D), zeros at pads.
    """
    y = torch.zeros_like(x)
    for row in range(len(x)):
        vectors = x[row, real[row]]
        length = len(vectors)
        q, k, v = (
            _linear(weights, name, vectors).chunk(heads, dim=-1)
            for name, heads in (("q_proj", num_heads), ("k_proj", num_kv_heads), ("v_proj", num_kv_heads))
        )
        q, k = _normed(weights, "q_norm", q), _normed(weights, "k_norm", k)
        q = [torch.stack([encoding.query(head[t], t) for t in range(length)]) for head in q]
        k = [torch.stack([encoding.key(head[t], t) for t in range(length)]) for head in k]
        outputs = []
        for t in range(length):
            seen = [j for j in range(length) if sees(t, j)]
            heads = []
            for head in range(num_heads):
                query, keys = q[head][t], k[head // (num_heads // num_kv_heads)][seen]
                query = query * (1 / math.sqrt(len(query)) if scale is None else scale)
                scores = keys @ query
                scores = scores + encoding.bias(head, num_heads, query, keys, [*seen, t], encoding_weights)
                exp = torch.exp(change(scores))
                sink = torch.exp(_part(weights, "logit")[head]) if _part(weights, "logit") is not None else 0.0
                values = torch.stack(
                    [v[head // (num_heads // num_kv_heads)][j] + encoding.value(t, j, encoding_weights) for j in seen]
                )
                heads.append((exp / (exp.sum() + sink)) @ values)
            outputs.append(torch.cat(heads))
        heads_of_all = torch.stack(outputs)
        gate = _part(weights, "gate_proj.weight")
        if gate is not None:
            heads_of_all = heads_of_all / (1 + torch.exp(-(vectors @ gate.T)))
        places = (torch.tensor(row), real[row].nonzero()[:, 0])
        y = y.index_put(places, _linear(weights, "out_proj", heads_of_all))
    return y


def soft_capped(cap: float) -> Callable[[Tensor], Tensor]:
    """Bello et al. 2017: cap tanh(score / cap)."""
    return lambda scores: cap * torch.tanh(scores / cap)


def top_k(k: int) -> Callable[[Tensor], Tensor]:
    """Zhao et al. 2019, equation 3: what is below the k-th largest score is out."""

    def change(scores: Tensor) -> Tensor:
        kth = scores.detach().sort(descending=True).values[min(k, len(scores)) - 1]
        return torch.where(scores >= kth, scores, torch.full_like(scores, -math.inf))

    return change


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _part(weights: Weights, name: str) -> Tensor | None:
    """The weight of a part, whatever its place among the parts."""
    return next((weight for key, weight in weights.items() if key.startswith("parts.") and key.endswith(name)), None)


def _normed(weights: Weights, name: str, heads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    gain = _part(weights, f"{name}.weight")
    if gain is None:
        return heads
    return tuple(head / (head.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt() * gain for head in heads)
