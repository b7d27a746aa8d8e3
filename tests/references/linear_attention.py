"""Linear attention in all its forms as the papers' recurrences, one row, one head and one step at a time, in float64.

A pad is the identity. Every reference is called with the mixer's parameters, x (B, T, D), which tokens are real
(B, T), and the naive encoding, and returns (B, T, D), zeros at pads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.naive import Weights, group_norm, in_rows, linear, sigmoid, swish


def linear_attention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int, feature_map: str) -> Tensor:
    """Katharopoulos et al. 2020, equations 16-20, with the authors' 1e-6 under the fraction."""

    def phi(y: Tensor) -> Tensor:
        if feature_map == "elu":
            return torch.where(y > 0, y + 1, torch.exp(y))
        return torch.clamp(y, min=0) if feature_map == "relu" else torch.exp(y) / torch.exp(y).sum()

    def row(vectors: list[Tensor]) -> list[Tensor]:
        outputs = []
        states: dict[int, tuple[Tensor, Tensor]] = {}
        for q, k, v in _queries_keys_values(weights, vectors, num_heads):
            y = []
            for h in range(num_heads):
                s, z = states.get(h, (torch.zeros(len(k[h]), len(v[h]), dtype=x.dtype), torch.zeros_like(k[h])))
                s, z = s + torch.outer(phi(k[h]), v[h]), z + phi(k[h])
                states[h] = s, z
                y.append(phi(q[h]) @ s / (phi(q[h]) @ z + 1e-6))
            outputs.append(linear(weights, "out_proj", torch.cat(y)))
        return outputs

    return in_rows(row, x, real)


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
            gate = swish(linear(weights, "gate_proj", x_t))
            outputs.append(linear(weights, "out_proj", gate * torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)


def gated_linear_attention(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Yang et al. 2023, equation 3 and section 4.4, temperature 16."""

    def row(vectors: list[Tensor]) -> list[Tensor]:
        outputs, states = [], [torch.zeros(1, 1, dtype=x.dtype)] * num_heads
        for x_t, (q, k, v) in zip(vectors, _queries_keys_values(weights, vectors, num_heads), strict=True):
            gates = linear(weights, "decay_up", linear(weights, "decay_down", x_t))
            alpha = heads_of(sigmoid(gates) ** (1 / 16), num_heads)
            heads = []
            for h in range(num_heads):
                states[h] = torch.diag(alpha[h]) @ states[h].expand(len(k[h]), len(v[h])) + torch.outer(k[h], v[h])
                heads.append(_rms_norm(states[h].T @ q[h] / math.sqrt(len(k[h])), 1e-5) * weights["head_norm.weight"])
            gate = swish(linear(weights, "gate_proj", x_t))
            outputs.append(linear(weights, "out_proj", gate * torch.cat(heads)))
        return outputs

    return in_rows(row, x, real)


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

    def row(vectors: list[Tensor]) -> list[Tensor]:
        outputs, states = [], [torch.zeros(1, 1, dtype=x.dtype)] * num_heads
        for x_t, (q, k, v) in zip(vectors, _queries_keys_values(weights, vectors, num_heads), strict=True):
            beta = sigmoid(linear(weights, "beta_proj", x_t)) * (2 if negative_eigenvalues else 1)
            heads = []
            for h in range(num_heads):
                q_h, k_h = (y / torch.sqrt(y @ y + 1e-6) for y in (q[h], k[h]))
                alpha = _selective_decay(weights, linear(weights, "decay_proj", x_t), h)[1] if gated else 1.0
                turn = alpha * (torch.eye(len(k_h), dtype=x.dtype) - beta[h] * torch.outer(k_h, k_h))
                states[h] = states[h].expand(len(v[h]), len(k_h)) @ turn + beta[h] * torch.outer(v[h], k_h)
                o = states[h] @ q_h / math.sqrt(len(k_h))
                heads.append(_rms_norm(o, 1e-5) * weights["head_norm.weight"])
            y = torch.cat(heads)
            if gated:
                y = y * swish(linear(weights, "gate_proj", x_t))
            outputs.append(linear(weights, "out_proj", y))
        return outputs

    return in_rows(row, x, real)


def mamba2(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    d_state: int,
    head_dim: int,
    expand: int,
    num_groups: int,
) -> Tensor:
    """Dao & Gu 2024, listing 1 and figure 6: h_t = exp(dt A) h_{t-1} + dt B_t x_t^T, y_t = C_t^T h_t + D x_t."""
    inner = expand * x.shape[-1]
    num_heads = inner // head_dim

    def row(vectors: list[Tensor]) -> list[Tensor]:
        projected = [
            linear(weights, "in_proj", x_t).split([inner, inner + 2 * num_groups * d_state, num_heads])
            for x_t in vectors
        ]
        convolved = _short_conv(weights, [conv_input for _, conv_input, _ in projected])
        outputs, states = [], [torch.zeros(d_state, head_dim, dtype=x.dtype)] * num_heads
        for t in range(len(vectors)):
            z, _, dt = projected[t]
            u = swish(convolved[t])
            heads = []
            for h in range(num_heads):
                u_h = u[h * head_dim : (h + 1) * head_dim]
                group = h // (num_heads // num_groups)
                b = u[inner + group * d_state :][:d_state]
                c = u[inner + (num_groups + group) * d_state :][:d_state]
                step, decay = _selective_decay(weights, dt, h)
                states[h] = decay * states[h] + step * torch.outer(b, u_h)
                heads.append(c @ states[h] + weights["skip"][h] * u_h)
            gated = torch.cat(heads) * swish(z)
            normed = torch.cat([_rms_norm(group, 1e-5) for group in gated.chunk(num_groups)])
            outputs.append(linear(weights, "out_proj", normed * weights["norm_weight"]))
        return outputs

    return in_rows(row, x, real)


def _queries_keys_values(weights: Weights, vectors: list[Tensor], num_heads: int) -> list[list[list[Tensor]]]:
    """Queries, keys and values of each position and head, after a convolution and swish where there is one."""
    names = ("q_proj", "k_proj", "v_proj")
    projected = [torch.cat([linear(weights, name, x_t) for name in names]) for x_t in vectors]
    if "conv.conv.weight" in weights:
        projected = [swish(y) for y in _short_conv(weights, projected)]
    widths = [len(weights[f"{name}.weight"]) for name in names]
    return [[heads_of(part, num_heads) for part in y.split(widths)] for y in projected]


def _selective_decay(weights: Weights, raw: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """The step softplus(raw + bias), and exp(-exp(a) step)."""
    step = torch.log1p(torch.exp(raw[head] + weights["dt_bias"][head]))
    return step, torch.exp(-torch.exp(weights["a_log"][head]) * step)


def _short_conv(weights: Weights, inputs: list[Tensor]) -> list[Tensor]:
    """y_t = sum_w weight_w x_{t - W + 1 + w} + bias, channel by channel, zeros before the start."""
    kernel = weights["conv.conv.weight"][:, 0]
    width = kernel.shape[1]
    outputs = []
    for t in range(len(inputs)):
        y = torch.zeros_like(inputs[0])
        for w in range(width):
            if t - width + 1 + w >= 0:
                y = y + kernel[:, w] * inputs[t - width + 1 + w]
        outputs.append(y + weights["conv.conv.bias"] if "conv.conv.bias" in weights else y)
    return outputs


def heads_of(x: Tensor, num_heads: int) -> list[Tensor]:
    return list(x.chunk(num_heads))


def _rms_norm(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean() + eps)
