"""Softmax attention as its papers write it, one query at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from references.positions import NaiveEncoding

Weights = Mapping[str, Tensor]


def causal(t: int, j: int) -> bool:
    """True where position t sees position j."""
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
    logit = _part(weights, "logit")
    for row in range(len(x)):
        vectors = x[row, real[row]]
        length = len(vectors)
        q, k, v = (
            _linear(weights, name, vectors).chunk(heads, dim=-1)
            for name, heads in (("q_proj", num_heads), ("k_proj", num_kv_heads), ("v_proj", num_kv_heads))
        )
        q, k = _normed(weights, "q_norm", q), _normed(weights, "k_norm", k)
        queries = [[encoding.query(q_t, t) for t, q_t in enumerate(head)] for head in q]
        turned = [torch.stack([encoding.key(k_t, t) for t, k_t in enumerate(head)]) for head in k]
        outputs = []
        for t in range(length):
            seen = [j for j in range(length) if sees(t, j)]
            heads = []
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                query, keys = queries[head][t], turned[kv_head][seen]
                query = query * (1 / math.sqrt(len(query)) if scale is None else scale)
                scores = keys @ query
                scores = scores + encoding.bias(head, num_heads, query, keys, [*seen, t], encoding_weights)
                exp = torch.exp(change(scores))
                sink = torch.exp(logit[head]) if logit is not None else 0.0
                values = v[kv_head][seen] + encoding.value(t, seen, encoding_weights)
                heads.append((exp / (exp.sum() + sink)) @ values)
            outputs.append(torch.cat(heads))
        heads_of_all = torch.stack(outputs)
        gate = _part(weights, "gate_proj.weight")
        if gate is not None:
            heads_of_all = heads_of_all / (1 + torch.exp(-(vectors @ gate.T)))
        places = (torch.tensor(row), real[row].nonzero()[:, 0])
        y = y.index_put(places, _linear(weights, "out_proj", heads_of_all))
    return y


def cross_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    encoding: NaiveEncoding,
    encoding_weights: Weights,
    *,
    num_heads: int,
    num_kv_heads: int,
    memory: Tensor,
    memory_mask: Tensor,
) -> Tensor:
    """Vaswani et al. 2017, section 3.2.3: queries from x (B, T, D), keys and values from the memory (S, D), of which
    `memory_mask` (S,) is real. Zeros at pads."""
    read = memory[memory_mask]
    keys, values = (_linear(weights, name, read).chunk(num_kv_heads, dim=-1) for name in ("k_proj", "v_proj"))
    y = torch.zeros_like(x)
    for row, t in real.nonzero().tolist():
        heads = []
        for head, query in enumerate(_linear(weights, "q_proj", x[row, t]).chunk(num_heads)):
            kv_head = head // (num_heads // num_kv_heads)
            exp = torch.exp(keys[kv_head] @ query / math.sqrt(len(query)))
            heads.append(exp / exp.sum() @ values[kv_head])
        output = _linear(weights, "out_proj", torch.cat(heads))
        y = y.index_put((torch.tensor(row), torch.tensor(t)), output)
    return y


def latent_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    encoding: NaiveEncoding,
    encoding_weights: Weights,
    *,
    num_heads: int,
) -> Tensor:
    """DeepSeek-V2, equations 9 to 19, with the numbers of its equations; norms on c^Q and c^KV. Zeros at pads."""
    y = torch.zeros_like(x)
    rank = len(weights["kv_norm.weight"])
    w_dkv, w_kr = weights["kv_down_proj.weight"][:rank], weights["kv_down_proj.weight"][rank:]
    head_dim, rope_dim = len(weights["k_proj.weight"]) // num_heads, len(w_kr)
    for row in range(len(x)):
        h = x[row, real[row]]
        c_kv = _rms_normed(h @ w_dkv.T, weights["kv_norm.weight"])  # (9)
        k_c = (c_kv @ weights["k_proj.weight"].T).chunk(num_heads, dim=-1)  # (10)
        v_c = (c_kv @ weights["v_proj.weight"].T).chunk(num_heads, dim=-1)  # (11)
        c_q = h
        if "q_norm.weight" in weights:
            c_q = _rms_normed(h @ weights["q_down_proj.weight"].T, weights["q_norm.weight"])  # (12)
        q = (c_q @ weights["q_proj.weight"].T).chunk(num_heads, dim=-1)  # (13) and (14) of each head
        k_r = torch.stack([encoding.key(w_kr @ h[t], t) for t in range(len(h))])  # (15)
        k = [torch.cat((k_ci, k_r), dim=-1) for k_ci in k_c]  # (17)
        for place, t in zip(real[row].nonzero()[:, 0], range(len(h)), strict=True):
            o = []
            for i in range(num_heads):
                q_ti = torch.cat((q[i][t][:head_dim], encoding.query(q[i][t][head_dim:], t)))  # (16)
                k_i = k[i][: t + 1]
                q_ti = q_ti / math.sqrt(head_dim + rope_dim)
                scores = k_i @ q_ti
                scores = scores + encoding.bias(i, num_heads, q_ti, k_i, [*range(t + 1), t], encoding_weights)
                exp = torch.exp(scores)
                o.append(exp / exp.sum() @ v_c[i][: t + 1])  # (18)
            y = y.index_put((torch.tensor(row), place), weights["out_proj.weight"] @ torch.cat(o))  # (19)
    return y


def differential_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    encoding: NaiveEncoding,
    encoding_weights: Weights,
    *,
    num_heads: int,
    num_kv_heads: int,
    layer: int,
) -> Tensor:
    """Ye et al. 2024, equations 1 to 3; both maps of a head are heads of their own to the encoding. Zeros at pads."""
    lambda_init = 0.8 - 0.6 * math.exp(-0.3 * ((layer + 1) - 1))  # l = 1, 2, ... in the paper
    first, second = (torch.exp(weights[f"lambda_q{i}"] @ weights[f"lambda_k{i}"]) for i in (1, 2))
    lambda_ = first - second + lambda_init
    y = torch.zeros_like(x)
    for row in range(len(x)):
        vectors = x[row, real[row]]
        # All Q1 stand before all Q2, all K1 before all K2.
        q = [(vectors @ half.T).chunk(num_heads, dim=-1) for half in weights["q_proj.weight"].chunk(2)]
        k = [(vectors @ half.T).chunk(num_kv_heads, dim=-1) for half in weights["k_proj.weight"].chunk(2)]
        v = (vectors @ weights["v_proj.weight"].T).chunk(num_kv_heads, dim=-1)
        queries = [[[encoding.query(q_t, t) for t, q_t in enumerate(head)] for head in heads] for heads in q]
        turned = [[torch.stack([encoding.key(k_t, t) for t, k_t in enumerate(head)]) for head in heads] for heads in k]
        for place, t in zip(real[row].nonzero()[:, 0], range(len(vectors)), strict=True):
            heads = []
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                maps = []
                for half in range(2):
                    query = queries[half][head][t]
                    query = query / math.sqrt(len(query))
                    keys = turned[half][kv_head][: t + 1]
                    scores = keys @ query
                    scores = scores + encoding.bias(head, num_heads, query, keys, [*range(t + 1), t], encoding_weights)
                    maps.append(torch.exp(scores) / torch.exp(scores).sum())
                mixed = (maps[0] - lambda_ * maps[1]) @ v[kv_head][: t + 1]
                normed = mixed / (mixed.pow(2).mean() + 1e-5).sqrt() * weights["head_norm.weight"]
                heads.append((1 - lambda_init) * normed)
            y = y.index_put((torch.tensor(row), place), weights["out_proj.weight"] @ torch.cat(heads))
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
    return tuple(_rms_normed(head, gain) for head in heads)


def _rms_normed(x: Tensor, gain: Tensor) -> Tensor:
    return x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt() * gain
