"""Softmax attention as its papers write it, one query at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from references.naive import Weights, in_rows, linear, rms_norm, short_conv, sigmoid, softmax, swish
from references.positions import NaiveEncoding


def _projected(
    weights: Weights, vectors: list[Tensor], num_heads: int, num_kv_heads: int
) -> Iterator[tuple[Tensor, ...]]:
    """Queries, keys and values (T, K) of each head."""
    for name, heads in (("q", num_heads), ("k", num_kv_heads), ("v", num_kv_heads)):
        yield linear(weights, f"{name}_proj", torch.stack(vectors)).chunk(heads, dim=-1)


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
        encoding: rotates queries and keys, biases scores, and adds to values.
        change: what becomes of the scores of one query in one head.
    """
    logit, gate, forget = (_part(weights, name) for name in ("logit", "gate_proj.weight", "forget_proj.weight"))

    def row(vectors: list[Tensor]) -> list[Tensor]:
        q, k, v = _projected(weights, vectors, num_heads, num_kv_heads)
        q, k = _normed(weights, "q_norm", tuple(q)), _normed(weights, "k_norm", tuple(k))
        keys = [_turned(encoding, k_h) for k_h in k]
        outputs = []
        if forget is not None:
            kept = torch.log(sigmoid(torch.stack(vectors) @ forget.T + _part(weights, "forget_proj.bias")))
        for t, x_t in enumerate(vectors):
            seen, heads = [j for j in range(len(vectors)) if sees(t, j)], []
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                query = encoding.query(q[head][t], t)
                query = query * (1 / math.sqrt(len(query)) if scale is None else scale)
                of_seen = keys[kv_head][seen]
                bias = encoding.bias(head, num_heads, query, of_seen, [*seen, t], encoding_weights)
                if forget is not None:
                    bias = bias + torch.stack([kept[j + 1 : t + 1, head].sum() for j in seen])
                exp = torch.exp(change(of_seen @ query + bias))
                sink = torch.exp(logit[head]) if logit is not None else 0.0
                values = v[kv_head][seen] + encoding.value(t, seen, encoding_weights)
                heads.append(exp / (exp.sum() + sink) @ values)
            mixed = torch.cat(heads)
            if gate is not None:  # one row of each channel, or of each head
                mixed = mixed * sigmoid(gate @ x_t).repeat_interleave(len(mixed) // len(gate))
            outputs.append(linear(weights, "out_proj", mixed))
        return outputs

    return in_rows(row, x, real)


def native_sparse_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    encoding: NaiveEncoding,
    encoding_weights: Weights,
    *,
    num_heads: int,
    num_kv_heads: int,
    block: int,
    k: int,
    window: int,
) -> Tensor:
    """Yuan et al. 2025 (NSA), equations 5 to 12, with means as the compression, and keys and values shared."""
    group = num_heads // num_kv_heads

    def row(vectors: list[Tensor]) -> list[Tensor]:
        q, plain, v = _projected(weights, vectors, num_heads, num_kv_heads)
        keys = [_turned(encoding, k_h) for k_h in plain]
        outputs = []
        for t, x_t in enumerate(vectors):
            gates = sigmoid(linear(weights, "gate_proj", x_t)).view(3, num_heads)
            seen, own = [*range(t + 1)], t // block
            whole = [seen[start : start + block] for start in range(0, (t + 1) // block * block, block)]
            scores, values, shares = [], [], []
            for head in range(num_heads):
                query = encoding.query(q[head][t], t)
                query = query / math.sqrt(len(query))
                of_seen = keys[head // group][seen]
                scores.append(
                    of_seen @ query + encoding.bias(head, num_heads, query, of_seen, [*seen, t], encoding_weights)
                )
                values.append(v[head // group][seen] + encoding.value(t, seen, encoding_weights))
                shares.append(
                    softmax(torch.stack([scores[-1][of].mean() for of in whole])) if whole else torch.zeros(0)
                )
            heads = []
            for head in range(num_heads):
                first = head // group * group
                weight = torch.stack(shares[first : first + group]).sum(dim=0)
                always = {0, own, max(own - 1, 0)}
                others = sorted({*range(len(whole))} - always, key=lambda one: -float(weight[one].detach()))
                chosen = always | {*others[: max(k - len(always), 0)]}
                picked = [j for j in seen if j // block in chosen]
                near = seen[-window:]
                means = sum(
                    (share * values[head][of].mean(dim=0) for share, of in zip(shares[head], whole, strict=True)),
                    0 * x_t[0],
                )
                parts = [softmax(scores[head][of]) @ values[head][of] for of in (picked, near)]
                heads.append(gates[0, head] * means + gates[1, head] * parts[0] + gates[2, head] * parts[1])
            outputs.append(linear(weights, "out_proj", torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)


def path_attention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int, num_kv_heads: int) -> Tensor:
    """Yang et al. 2025 (PaTH), section 3: each token reflects the keys before it; with their forget gate."""
    forget = _part(weights, "forget_proj.weight")

    def row(vectors: list[Tensor]) -> list[Tensor]:
        rows = torch.stack(vectors)
        q, k, v = _projected(weights, vectors, num_heads, num_kv_heads)
        projected = [linear(weights, "w_up", linear(weights, "w_down", x_t)) for x_t in vectors]
        convolved = torch.stack([swish(one) for one in short_conv(weights, projected)]).chunk(num_kv_heads, dim=-1)
        w = [one / torch.sqrt((one * one).sum(dim=-1, keepdim=True) + 1e-6) for one in convolved]
        betas = 2 * sigmoid(linear(weights, "beta_proj", rows))
        log_f = torch.zeros(len(vectors), num_heads, dtype=x.dtype)
        if forget is not None:
            log_f = torch.log(sigmoid(rows @ forget.T + _part(weights, "forget_proj.bias")))
        outputs = []
        keys: list[list[Tensor]] = [[] for _ in range(num_kv_heads)]
        for t in range(len(vectors)):
            for head, of_head in enumerate(keys):
                reflection = torch.eye(w[head].shape[1]).to(x) - betas[t, head] * torch.outer(w[head][t], w[head][t])
                keys[head] = [*(reflection @ key for key in of_head), k[head][t]]
            heads = []
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                kept = torch.stack([log_f[j + 1 : t + 1, head].sum() for j in range(t + 1)])
                scores = torch.stack(keys[kv_head]) @ q[head][t] / math.sqrt(q[head].shape[1]) + kept
                heads.append(softmax(scores) @ v[kv_head][: t + 1])
            outputs.append(linear(weights, "out_proj", torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)


def cross_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    num_heads: int,
    num_kv_heads: int,
    memory: Tensor,
    memory_mask: Tensor,
) -> Tensor:
    """Vaswani et al. 2017, section 3.2.3: queries from x (B, T, D), keys and values from the memory (S, D), of which
    `memory_mask` (S,) is real."""
    read, group = memory[memory_mask], num_heads // num_kv_heads
    keys, values = (linear(weights, name, read).chunk(num_kv_heads, dim=-1) for name in ("k_proj", "v_proj"))

    def mixed(x_t: Tensor) -> Tensor:
        heads = [
            softmax(keys[head // group] @ query / math.sqrt(len(query))) @ values[head // group]
            for head, query in enumerate(linear(weights, "q_proj", x_t).chunk(num_heads))
        ]
        return linear(weights, "out_proj", torch.cat(heads))

    return in_rows(lambda vectors: [mixed(x_t) for x_t in vectors], x, real)


def latent_attention(
    weights: Weights, x: Tensor, real: Tensor, encoding: NaiveEncoding, encoding_weights: Weights, *, num_heads: int
) -> Tensor:
    """DeepSeek-V2, equations 9 to 19, with the numbers of its equations; norms on c^Q and c^KV."""
    rank = len(weights["kv_norm.weight"])
    w_dkv, w_kr = weights["kv_down_proj.weight"][:rank], weights["kv_down_proj.weight"][rank:]
    head_dim, rope_dim = len(weights["k_proj.weight"]) // num_heads, len(w_kr)

    def row(vectors: list[Tensor]) -> list[Tensor]:
        h = torch.stack(vectors)
        c_kv = _rms_normed(h @ w_dkv.T, weights["kv_norm.weight"])  # (9)
        k_c = (c_kv @ weights["k_proj.weight"].T).chunk(num_heads, dim=-1)  # (10)
        v_c = (c_kv @ weights["v_proj.weight"].T).chunk(num_heads, dim=-1)  # (11)
        c_q = h
        if "q_norm.weight" in weights:
            c_q = _rms_normed(h @ weights["q_down_proj.weight"].T, weights["q_norm.weight"])  # (12)
        q = (c_q @ weights["q_proj.weight"].T).chunk(num_heads, dim=-1)  # (13) and (14) of each head
        k_r = _turned(encoding, h @ w_kr.T)  # (15)
        k = [torch.cat((k_ci, k_r), dim=-1) for k_ci in k_c]  # (17)
        outputs = []
        for t in range(len(h)):
            o = []
            for i in range(num_heads):
                q_ti = torch.cat((q[i][t][:head_dim], encoding.query(q[i][t][head_dim:], t)))  # (16)
                q_ti, k_i = q_ti / math.sqrt(head_dim + rope_dim), k[i][: t + 1]
                bias = encoding.bias(i, num_heads, q_ti, k_i, [*range(t + 1), t], encoding_weights)
                o.append(softmax(k_i @ q_ti + bias) @ v_c[i][: t + 1])  # (18)
            outputs.append(weights["out_proj.weight"] @ torch.cat(o))  # (19)
        return outputs

    return in_rows(row, x, real)


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
    """Ye et al. 2024, equations 1 to 3; both maps of a head are heads of their own to the encoding."""
    lambda_init = 0.8 - 0.6 * math.exp(-0.3 * ((layer + 1) - 1))  # l = 1, 2, ... in the paper
    first, second = (torch.exp(weights[f"lambda_q{i}"] @ weights[f"lambda_k{i}"]) for i in (1, 2))
    lambda_ = first - second + lambda_init

    def row(vectors: list[Tensor]) -> list[Tensor]:
        h = torch.stack(vectors)
        # All Q1 stand before all Q2, all K1 before all K2.
        q = [(h @ half.T).chunk(num_heads, dim=-1) for half in weights["q_proj.weight"].chunk(2)]
        k = [(h @ half.T).chunk(num_kv_heads, dim=-1) for half in weights["k_proj.weight"].chunk(2)]
        v = (h @ weights["v_proj.weight"].T).chunk(num_kv_heads, dim=-1)
        turned = [[_turned(encoding, k_h) for k_h in heads] for heads in k]
        outputs = []
        for t in range(len(h)):
            heads = []
            for head in range(num_heads):
                kv_head, maps = head // (num_heads // num_kv_heads), []
                for half in range(2):
                    query = encoding.query(q[half][head][t], t)
                    query, keys = query / math.sqrt(len(query)), turned[half][kv_head][: t + 1]
                    bias = encoding.bias(head, num_heads, query, keys, [*range(t + 1), t], encoding_weights)
                    maps.append(softmax(keys @ query + bias))
                mixed = (maps[0] - lambda_ * maps[1]) @ v[kv_head][: t + 1]
                heads.append((1 - lambda_init) * rms_norm(mixed, 1e-5) * weights["head_norm.weight"])
            outputs.append(weights["out_proj.weight"] @ torch.cat(heads))
        return outputs

    return in_rows(row, x, real)


def soft_capped(cap: float) -> Callable[[Tensor], Tensor]:
    """Bello et al. 2017: cap tanh(score / cap)."""
    return lambda scores: cap * torch.tanh(scores / cap)


def top_k(k: int) -> Callable[[Tensor], Tensor]:
    """Zhao et al. 2019, equation 3: what is below the k-th largest score is out."""

    def change(scores: Tensor) -> Tensor:
        kth = scores.detach().sort(descending=True).values[min(k, len(scores)) - 1]
        return torch.where(scores >= kth, scores, torch.full_like(scores, -math.inf))

    return change


def moba(block: int, k: int) -> Callable[[Tensor], Tensor]:
    """Lu et al. 2025, equations 5 and 6: what is outside the query's block and the k - 1 best earlier ones is out."""

    def change(scores: Tensor) -> Tensor:
        parts = [scores[start : start + block] for start in range(0, len(scores), block)]
        best = sorted(range(len(parts) - 1), key=lambda n: float(parts[n].detach().mean()), reverse=True)[: k - 1]
        kept = [*best, len(parts) - 1]
        return torch.cat([part if n in kept else torch.full_like(part, -math.inf) for n, part in enumerate(parts)])

    return change


def _turned(encoding: NaiveEncoding, keys: Tensor) -> Tensor:
    return torch.stack([encoding.key(k_t, t) for t, k_t in enumerate(keys)])


def _part(weights: Weights, name: str) -> Tensor | None:
    """The weight of a part, whatever its place among the parts."""
    return next((weight for key, weight in weights.items() if key.startswith("parts.") and key.endswith(name)), None)


def _normed(weights: Weights, name: str, heads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Each head, or where there is a gain for all their channels, all together."""
    gain = _part(weights, f"{name}.weight")
    if gain is None:
        return heads
    if len(gain) == heads[0].shape[-1]:
        return tuple(_rms_normed(head, gain) for head in heads)
    return _rms_normed(torch.cat(heads, dim=-1), gain).chunk(len(heads), dim=-1)


def _rms_normed(x: Tensor, gain: Tensor) -> Tensor:
    return rms_norm(x, 1e-6) * gain
