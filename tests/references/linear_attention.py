"""Linear attention in all its forms as the papers' recurrences, one head and one step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from references.naive import (
    Weights,
    group_norm,
    in_rows,
    in_steps,
    linear,
    rms_norm,
    short_conv,
    sigmoid,
    softmax,
    swish,
    unrolled,
)

QKV = list[tuple[Tensor, ...]]
"""Queries, keys and values of one position, each of all heads."""
Found = tuple[object, Tensor]
"""The next state of a head, and its output."""


def linear_attention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int, feature_map: str) -> Tensor:
    """Katharopoulos et al. 2020, equations 16-20, with the authors' 1e-6 under the fraction."""

    def phi(y: Tensor) -> Tensor:
        if feature_map == "elu":
            return torch.where(y > 0, y + 1, torch.exp(y))
        return torch.clamp(y, min=0) if feature_map == "relu" else softmax(y)

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, state: tuple[Tensor, Tensor], x_t: Tensor) -> Found:
        s, z = state[0] + torch.outer(phi(k), v), state[1] + phi(k)
        return (s, z), phi(q) @ s / (phi(q) @ z + 1e-6)

    return _by_head(weights, x, real, num_heads, (0.0, 0.0), head)


def retention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Sun et al. 2023, equations 6 and 8 without the rotation; the scores over sqrt(d_k) as in section 2.1."""

    def row(vectors: list[Tensor]) -> list[Tensor]:
        outputs = []
        projected = _queries_keys_values(weights, vectors, num_heads)
        k, v = ([torch.stack([y[part][h] for y in projected]) for h in range(num_heads)] for part in (1, 2))
        for t, x_t in enumerate(vectors):
            q, heads = projected[t][0], []
            for h in range(num_heads):
                gamma = torch.tensor(1 - 2.0 ** (-5 - h), dtype=x.dtype)
                d = gamma ** torch.arange(t, -1, -1)  # the parallel form: (Q K^T * D) V with D_ti = gamma^(t - i)
                o = d * (k[h][: t + 1] @ q[h]) / math.sqrt(len(q[h])) @ v[h][: t + 1]
                heads.append(group_norm(weights, o, h, 1e-5))
            outputs.append(linear(weights, "out_proj", swish(linear(weights, "gate_proj", x_t)) * torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)


def gated_linear_attention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Yang et al. 2023, equation 3 and section 4.4, temperature 16."""

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, s: Tensor, x_t: Tensor) -> Found:
        gates = linear(weights, "decay_up", linear(weights, "decay_down", x_t))
        alpha = (sigmoid(gates) ** (1 / 16)).chunk(num_heads)[h]
        s = alpha[:, None] * s + torch.outer(k, v)  # Diag(alpha) S + k v^T
        return s, rms_norm(s.T @ q / math.sqrt(len(k)), 1e-5) * weights["head_norm.weight"]

    return _by_head(weights, x, real, num_heads, 0.0, head, swish)


def delta_net(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    num_heads: int,
    gated: bool = False,
    negative_eigenvalues: bool = False,
) -> Tensor:
    """Yang et al. 2024: S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, o_t = S_t q_t, S being V x K there.
    Gated (equation 10 of "Gated Delta Networks"): S_t = S_{t-1} (alpha_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T.
    """

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, s: Tensor, x_t: Tensor) -> Found:
        beta = sigmoid(linear(weights, "beta_proj", x_t))[h] * (2 if negative_eigenvalues else 1)
        q, k = (y / torch.sqrt(y @ y + 1e-6) for y in (q, k))
        alpha = _selective_decay(weights, linear(weights, "decay_proj", x_t), h)[1] if gated else 1.0
        turn = alpha * (torch.eye(len(k), dtype=x.dtype) - beta * torch.outer(k, k))
        s = s.expand(len(v), len(k)) @ turn + beta * torch.outer(v, k)
        return s, rms_norm(s @ q / math.sqrt(len(k)), 1e-5) * weights["head_norm.weight"]

    start = torch.zeros(1, 1, dtype=x.dtype)
    return _by_head(weights, x, real, num_heads, start, head, swish if gated else None)


def gated_delta_product(
    weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int, writes: int, strongest: float = 2
) -> Tensor:
    """Siems et al. 2025, equations 4 and 5: H = (I - beta_j k_j k_j^T) H + beta_j k_j v_j^T for each write of a token,
    after a decay, H being K x V."""

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, s: Tensor, x_t: Tensor) -> Found:
        betas = sigmoid(linear(weights, "beta_proj", x_t)).chunk(num_heads)[h] * strongest
        s = _selective_decay(weights, linear(weights, "decay_proj", x_t), h)[1] * s.expand(len(q), len(v) // writes)
        for beta, k_j, v_j in zip(betas, k.chunk(writes), v.chunk(writes), strict=True):
            k_j = k_j / torch.sqrt(k_j @ k_j + 1e-6)
            s = s + beta * torch.outer(k_j, v_j - s.T @ k_j)
        q = q / torch.sqrt(q @ q + 1e-6)
        return s, rms_norm(s.T @ q / math.sqrt(len(q)), 1e-5) * weights["head_norm.weight"]

    return _by_head(weights, x, real, num_heads, torch.zeros(1, 1, dtype=x.dtype), head, swish)


def hgrn2(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int, bound: float) -> Tensor:
    """Qin et al. 2024, equations 5 and 6, with the lower bound of a layer, and then the norm of all heads together."""

    def row(vectors: list[Tensor]) -> list[Tensor]:
        states, outputs = [torch.zeros(1, 1, dtype=x.dtype)] * num_heads, []
        for queries, keys, values in _queries_keys_values(weights, vectors, num_heads):
            heads = []
            for h, (q, k, v) in enumerate(zip(queries, keys, values, strict=True)):
                f = bound + (1 - bound) * sigmoid(k)
                states[h] = torch.diag(f) @ states[h].expand(len(k), len(v)) + torch.outer(1 - f, v)
                heads.append(states[h].T @ swish(q))
            normed = rms_norm(torch.cat(heads), 1e-5) * weights["norm.weight"]
            outputs.append(linear(weights, "out_proj", normed))
        return outputs

    return in_rows(row, x, real)


def kimi_delta_attention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Kimi Team 2025, equation 1, S being K x V, and then the gate of the normed heads and the projection."""

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, s: Tensor, x_t: Tensor) -> Found:
        width = len(k)
        own = slice(h * width, (h + 1) * width)
        beta = sigmoid(linear(weights, "beta_proj", x_t))[h]
        q, k = (y / torch.sqrt(y @ y + 1e-6) for y in (q, k))
        raw = linear(weights, "decay_up", linear(weights, "decay_down", x_t)) + weights["dt_bias"]
        step = torch.log1p(torch.exp(raw[own]))
        alpha = torch.exp(-torch.exp(weights["a_log"][h]) * step)
        erase = torch.eye(width, dtype=x.dtype) - beta * torch.outer(k, k)
        s = erase @ torch.diag(alpha) @ s.expand(width, width) + beta * torch.outer(k, v)
        gate = sigmoid(linear(weights, "gate_up", linear(weights, "gate_down", x_t)))[own]
        return s, gate * rms_norm(s.T @ q / math.sqrt(width), 1e-5) * weights["head_norm.weight"]

    return _by_head(weights, x, real, num_heads, torch.zeros(1, 1, dtype=x.dtype), head)


def gated_delta_net2(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Hatamizadeh et al. 2026, S being K x V: the erased key and the written value have a gate for each channel."""

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, s: Tensor, x_t: Tensor) -> Found:
        width = len(k)
        own = slice(h * width, (h + 1) * width)
        b, w = (sigmoid(linear(weights, name, x_t))[own] for name in ("erase_proj", "write_proj"))
        q, k = (y / torch.sqrt(y @ y + 1e-6) for y in (q, k))
        raw = linear(weights, "decay_up", linear(weights, "decay_down", x_t)) + weights["dt_bias"]
        alpha = torch.exp(-torch.exp(weights["a_log"][h]) * torch.log1p(torch.exp(raw[own])))
        s = alpha[:, None] * s.expand(width, width)
        s = s - torch.outer(k, (b * k) @ s) + torch.outer(k, w * v)
        gate = sigmoid(linear(weights, "gate_up", linear(weights, "gate_down", x_t)))[own]
        return s, gate * rms_norm(s.T @ q / math.sqrt(width), 1e-5) * weights["head_norm.weight"]

    return _by_head(weights, x, real, num_heads, torch.zeros(1, 1, dtype=x.dtype), head)


def mlstm(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Beck et al. 2024 (xLSTM), equations 19-27, not stabilised, C being V x K; then the norm of each head, the output
    gate, and the projection."""

    def head(h: int, q: Tensor, k: Tensor, v: Tensor, state: tuple[Tensor, Tensor], x_t: Tensor) -> Found:
        i = torch.exp(linear(weights, "in_gate_proj", x_t) + weights["in_gate_bias"])[h]
        f = sigmoid(linear(weights, "forget_gate_proj", x_t) + weights["forget_gate_bias"])[h]
        k = k / math.sqrt(len(k))
        c, n = f * state[0] + i * torch.outer(v, k), f * state[1] + i * k
        return (c, n), group_norm(weights, c @ q / torch.clamp((n @ q).abs(), min=1), h, 1e-5)

    return _by_head(weights, x, real, num_heads, (0.0, 0.0), head, sigmoid)


def rwkv7(weights: Weights, x: Tensor, real: Tensor, *_: object, head_dim: int) -> Tensor:
    """Peng et al. 2025, equations 3-22 without the mix of values across layers, wkv being V x K."""
    num_heads = x.shape[-1] // head_dim

    def step(state: tuple[list[Tensor], Tensor], x_t: Tensor) -> tuple[tuple[list[Tensor], Tensor], Tensor]:
        wkv, before = state
        x_r, x_w, x_k, x_v, x_a, x_g = ((1 - mu) * x_t + mu * before for mu in weights["shift_mix"])
        r, k, v = linear(weights, "r_proj", x_r), linear(weights, "k_proj", x_k), linear(weights, "v_proj", x_v)
        d = weights["decay_bias"] + linear(weights, "decay_up", torch.tanh(linear(weights, "decay_down", x_w)))
        w = torch.exp(-math.exp(-0.5) * sigmoid(d))
        a = sigmoid(weights["rate_bias"] + linear(weights, "rate_up", linear(weights, "rate_down", x_a)))
        g = linear(weights, "gate_up", sigmoid(linear(weights, "gate_down", x_g)))
        kappa = k * weights["removal_scale"]
        k = k * ((1 - weights["rate_scale"]) + weights["rate_scale"] * a)
        later, heads = [], []
        for h in range(num_heads):
            r_h, w_h, k_h, v_h, a_h, kappa_h = (y.split(head_dim)[h] for y in (r, w, k, v, a, kappa))
            kappa_h = kappa_h / torch.sqrt(kappa_h @ kappa_h)
            s = wkv[h] @ (torch.diag(w_h) - torch.outer(kappa_h, a_h * kappa_h)) + torch.outer(v_h, k_h)
            bonus = (r_h @ (weights["bonus"][h] * k_h)) * v_h
            heads.append(group_norm(weights, s @ r_h, h, 1e-5 * head_dim) + bonus)
            later.append(s)
        return (later, x_t), linear(weights, "out_proj", g * torch.cat(heads))

    zeros = torch.zeros(head_dim, head_dim, dtype=x.dtype)
    return in_steps(step, ([zeros] * num_heads, torch.zeros_like(x[0, 0])), x, real)


def mamba2(
    weights: Weights, x: Tensor, real: Tensor, *_: object, d_state: int, head_dim: int, expand: int, num_groups: int
) -> Tensor:
    """Dao & Gu 2024, listing 1 and figure 6: h_t = exp(dt A) h_{t-1} + dt B_t x_t^T, y_t = C_t^T h_t + D x_t."""
    inner, of_group = expand * x.shape[-1], num_groups * d_state
    num_heads = inner // head_dim

    def row(vectors: list[Tensor]) -> list[Tensor]:
        projected = [linear(weights, "in_proj", x_t).split([inner, inner + 2 * of_group, num_heads]) for x_t in vectors]
        convolved = short_conv(weights, [conv_input for _, conv_input, _ in projected])
        outputs, states = [], [torch.zeros(d_state, head_dim, dtype=x.dtype)] * num_heads
        for (z, _, dt), u in zip(projected, map(swish, convolved), strict=True):
            values, b, c = u.split([inner, of_group, of_group])
            heads = []
            for h, u_h in enumerate(values.split(head_dim)):
                group = h // (num_heads // num_groups)
                step, decay = _selective_decay(weights, dt, h)
                states[h] = decay * states[h] + step * torch.outer(b.split(d_state)[group], u_h)
                heads.append(c.split(d_state)[group] @ states[h] + weights["skip"][h] * u_h)
            gated = torch.cat(heads) * swish(z)
            normed = torch.cat([rms_norm(part, 1e-5) for part in gated.chunk(num_groups)])
            outputs.append(linear(weights, "out_proj", normed * weights["norm_weight"]))
        return outputs

    return in_rows(row, x, real)


def log_linear_mamba2(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    d_state: int,
    head_dim: int,
    expand: int,
    num_groups: int,
    num_levels: int,
) -> Tensor:
    """Guo et al. 2025, equation 7 and section 3.2: before token t enters level 0, the levels up to that of t's lowest
    bit are added up, one level higher."""
    inner, of_group = expand * x.shape[-1], num_groups * d_state
    num_heads = inner // head_dim

    def row(vectors: list[Tensor]) -> list[Tensor]:
        projected = [linear(weights, "in_proj", x_t).split([inner, inner + 2 * of_group, num_heads]) for x_t in vectors]
        convolved = short_conv(weights, [conv_input for _, conv_input, _ in projected])
        nothing = torch.zeros(d_state, head_dim, dtype=x.dtype)
        outputs, states = [], [[nothing] * num_levels] * num_heads
        for t, (x_t, (z, _, dt), u) in enumerate(zip(vectors, projected, map(swish, convolved), strict=True)):
            values, b, c = u.split([inner, of_group, of_group])
            level = min((t & -t).bit_length(), num_levels - 1)
            moved = [[*[nothing] * level, sum(of[: level + 1], nothing), *of[level + 1 :]] for of in states]
            states = moved if t else states
            raw = weights["level_scale"] * linear(weights, "level_proj", x_t).view(num_heads, num_levels)
            heads = []
            for h, u_h in enumerate(values.split(head_dim)):
                group = h // (num_heads // num_groups)
                step, decay = _selective_decay(weights, dt, h)
                states[h] = [decay * s for s in states[h]]
                states[h][0] = states[h][0] + step * torch.outer(b.split(d_state)[group], u_h)
                q = c.split(d_state)[group]
                read = sum(torch.log1p(r.exp()) * (q @ s) for r, s in zip(raw[h], states[h], strict=True))
                heads.append(read + weights["skip"][h] * u_h)
            gated = torch.cat(heads) * swish(z)
            normed = torch.cat([rms_norm(part, 1e-5) for part in gated.chunk(num_groups)])
            outputs.append(linear(weights, "out_proj", normed * weights["norm_weight"]))
        return outputs

    return in_rows(row, x, real)


def mamba3(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    d_state: int,
    head_dim: int,
    expand: int,
    num_groups: int,
    rank: int,
) -> Tensor:
    """Lahoti et al. 2026, section 3: the trapezoidal rule with two writes a step, and the state of a head as complex
    numbers, one for each rotated pair of channels, which the step multiplies by exp(-i angle)."""
    inner, of_groups = expand * x.shape[-1], rank * num_groups * d_state
    num_heads, half = inner // head_dim, d_state // 2
    one = torch.ones(num_heads, 1, head_dim, dtype=x.dtype)
    v_gain, z_gain, out_gain = (weights.get(f"{name}_gain", one) for name in ("v", "z", "out"))

    def write(s: tuple[Tensor, Tensor], weight: Tensor, k: list[Tensor], v: list[Tensor]) -> tuple[Tensor, Tensor]:
        for key, value in zip(k, v, strict=True):
            turning = s[0] + weight * torch.outer(_pairs(key[:half]), value + 0j)
            s = turning, s[1] + weight * torch.outer(key[half:], value)
        return s

    def row(vectors: list[Tensor]) -> list[Tensor]:
        outputs = []
        empty = torch.zeros(half // 2, head_dim, dtype=torch.complex128), torch.zeros(half, head_dim, dtype=x.dtype)
        states = [empty] * num_heads
        last: list[tuple[list[Tensor], list[Tensor]]] = [([], [])] * num_heads
        for x_t in vectors:
            parts = linear(weights, "in_proj", x_t).split(
                [inner, inner, of_groups, of_groups, num_heads, num_heads, num_heads, half // 2]
            )
            z, values, keys, queries, dt, rate, share, turn = parts
            heads = []
            for h, (v_h, z_h) in enumerate(zip(values.split(head_dim), z.split(head_dim), strict=True)):
                group = h // (num_heads // num_groups)
                k, q = (
                    [
                        rms_norm(each.view(rank, num_groups, d_state)[m, group], 1e-5) * weights[f"{name}_norm.weight"]
                        + weights[f"{name}_bias"][h, m]
                        for m in range(rank)
                    ]
                    for name, each in (("k", keys), ("q", queries))
                )
                v = [v_h * v_gain[h, m] for m in range(rank)]
                step = torch.log1p(torch.exp(dt[h] + weights["dt_bias"][h]))
                alpha = torch.exp(-step * torch.clamp(torch.log1p(torch.exp(rate[h])), min=1e-4))
                lam = sigmoid(share[h])
                then, now = (1 - lam) * step * alpha, lam * step
                # The state as seen from axes that turn with the tokens.
                spin = torch.exp(-1j * step * math.pi * torch.tanh(turn)).unsqueeze(1)
                turning, still = write((alpha * states[h][0], alpha * states[h][1]), then, *last[h])
                states[h] = turning, still = write((spin * turning, still), now, k, v)
                reads = [(_pairs(q_m[:half]).conj() @ turning).real + q_m[half:] @ still for q_m in q]
                outs = [
                    out_gain[h, m] * (read + weights["skip"][h] * v[m]) * swish(z_h * z_gain[h, m])
                    for m, read in enumerate(reads)
                ]
                heads.append(sum(outs[1:], outs[0]))
                last[h] = (k, v)
            outputs.append(linear(weights, "out_proj", torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)


def _pairs(x: Tensor) -> Tensor:
    """Neighbouring channels as complex numbers."""
    return torch.complex(x[0::2], x[1::2])


def _by_head(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    num_heads: int,
    start: object,
    head: Callable[..., Found],
    gate: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Every head by itself from the state `start`, a gate where there is one, and the projection.

    Args:
        head: (its number, its q, k and v, its state, x_t) to the next state and its output.
        gate: of `gate_proj` of x_t; the heads are multiplied by it.
    """

    def row(vectors: list[Tensor]) -> list[Tensor]:
        def step(states: list[object], read: tuple[Tensor, QKV]) -> tuple[list[object], Tensor]:
            x_t, (q, k, v) = read
            found = [head(h, q[h], k[h], v[h], states[h], x_t) for h in range(num_heads)]
            y = torch.cat([o for _, o in found])
            if gate is not None:
                y = gate(linear(weights, "gate_proj", x_t)) * y
            return [state for state, _ in found], linear(weights, "out_proj", y)

        projected = _queries_keys_values(weights, vectors, num_heads)
        return unrolled(step, [start] * num_heads, zip(vectors, projected, strict=True))

    return in_rows(row, x, real)


def _queries_keys_values(weights: Weights, vectors: list[Tensor], num_heads: int) -> list[QKV]:
    """Each position's, after a convolution and swish where there is one."""
    names = ("q_proj", "k_proj", "v_proj")
    projected = [torch.cat([linear(weights, name, x_t) for name in names]) for x_t in vectors]
    if "conv.conv.weight" in weights:
        projected = [swish(y) for y in short_conv(weights, projected)]
    widths = [len(weights[f"{name}.weight"]) for name in names]
    return [[part.chunk(num_heads) for part in y.split(widths)] for y in projected]


def _selective_decay(weights: Weights, raw: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """The step softplus(raw + bias), and exp(-exp(a) step)."""
    step = torch.log1p(torch.exp(raw[head] + weights["dt_bias"][head]))
    return step, torch.exp(-torch.exp(weights["a_log"][head]) * step)
