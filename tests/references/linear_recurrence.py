"""Linear recurrences and windows as their papers' equations, one row and one step at a time, in float64.

A row is computed from its real tokens alone; pads get zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def min_gru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Feng et al. 2024, section 3.1.3: z_t = sigmoid(Linear(x_t)), h~_t = Linear(x_t),
    h_t = (1 - z_t) * h_{t-1} + z_t * h~_t. x (B, T, D), real (B, T)."""

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros(len(weights["out_proj.weight"][0]), dtype=torch.float64), []
        for x_t in tokens:
            z, candidate = _linear(weights, "in_proj", x_t).chunk(2)
            z = 1 / (1 + torch.exp(-z))
            h = (1 - z) * h + z * candidate
            outputs.append(_linear(weights, "out_proj", h))
        return outputs

    return _by_row(row, x, real)


def min_lstm(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Feng et al. 2024, section 3.2.3: f_t, i_t = sigmoid(Linear(x_t)), f' = f/(f + i), i' = i/(f + i),
    h_t = f' * h_{t-1} + i' * h~_t. x (B, T, D), real (B, T)."""

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros(len(weights["out_proj.weight"][0]), dtype=torch.float64), []
        for x_t in tokens:
            f, i, candidate = _linear(weights, "in_proj", x_t).chunk(3)
            f, i = 1 / (1 + torch.exp(-f)), 1 / (1 + torch.exp(-i))
            h = f / (f + i) * h + i / (f + i) * candidate
            outputs.append(_linear(weights, "out_proj", h))
        return outputs

    return _by_row(row, x, real)


def lru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Orvieto et al. 2023, appendix A: lambda = exp(-exp(nu) + i exp(theta)); h_t = lambda h_{t-1} + gamma B x_t;
    y_t = Re(C h_t) + D x_t. x (B, T, D), real (B, T)."""
    decay = torch.exp(torch.complex(-torch.exp(weights["nu_log"]), torch.exp(weights["theta_log"])))
    b = torch.complex(*weights["in_proj.weight"].chunk(2, dim=0))
    c_real, minus_c_imag = weights["out_proj.weight"].chunk(2, dim=1)
    c = torch.complex(c_real, -minus_c_imag)

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros_like(decay), []
        for x_t in tokens:
            h = decay * h + torch.exp(weights["gamma_log"]) * (b @ x_t.to(b.dtype))
            outputs.append((c @ h).real + weights["skip"] * x_t)
        return outputs

    return _by_row(row, x, real)


def s4d(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Gu et al. 2022, equation 2 (ZOH): A_bar = exp(dt A), B_bar = (dt A)^-1 (exp(dt A) - 1) dt B with B = 1; per
    channel h_t = A_bar h_{t-1} + B_bar x_t, y_t = 2 Re(C h_t) + D x_t; then GLU(Linear(GELU(y_t))). x (B, T, D), real
    (B, T)."""
    dt = torch.exp(weights["log_dt"])[:, None]
    a = torch.complex(-torch.exp(weights["log_decay"]), weights["frequency"])
    c = torch.complex(weights["c_real"], weights["c_imag"])
    a_bar = torch.exp(dt * a)
    b_bar = 1 / (dt * a) * (a_bar - 1) * dt

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros_like(a), []
        for x_t in tokens:
            h = a_bar * h + b_bar * x_t[:, None]
            y = 2 * (c * h).sum(1).real + weights["skip"] * x_t
            gelu = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
            value, gate = _linear(weights, "out_proj", gelu).chunk(2)
            outputs.append(value / (1 + torch.exp(-gate)))
        return outputs

    return _by_row(row, x, real)


def rg_lru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """De et al. 2024, section 2.4, equations 1 to 4, in the block of section 2.3: r_t = sigmoid(W_a x_t + b_a),
    i_t = sigmoid(W_x x_t + b_x), a_t = a^(c r_t) with a = sigmoid(-decay) and c = 8,
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t x_t); the authors' code does not scale the first input. x (B, T, D), real
    (B, T)."""
    w_a = torch.block_diag(*weights["recurrent_gate_weight"]).T
    w_x = torch.block_diag(*weights["input_gate_weight"]).T
    a = 1 / (1 + torch.exp(weights["decay"]))

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros_like(a), []
        branch = _convolve(weights, [_linear(weights, "in_proj", x_t) for x_t in tokens])
        for t, (x_t, u) in enumerate(zip(tokens, branch, strict=True)):
            r = 1 / (1 + torch.exp(-(w_a @ u + weights["recurrent_gate_bias"].flatten())))
            i = 1 / (1 + torch.exp(-(w_x @ u + weights["input_gate_bias"].flatten())))
            a_t = a ** (8 * r)
            h = a_t * h + (torch.sqrt(1 - a_t**2) if t else 1) * i * u
            gate = _linear(weights, "gate_proj", x_t)
            gelu = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
            outputs.append(_linear(weights, "out_proj", gelu * h))
        return outputs

    return _by_row(row, x, real)


def mamba(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Gu & Dao 2023, algorithm 2: A_bar = exp(dt A), B_bar = dt B; h_t = A_bar h_{t-1} + B_bar x_t, y_t = C h_t +
    D x_t, in the block of section 3.4, channel by channel. x (B, T, D), real (B, T)."""
    a = -torch.exp(weights["a_log"])
    channels, num_states = a.shape
    rank = weights["dt_weight"].shape[1]

    def row(tokens: Tensor) -> list[Tensor]:
        h, outputs = torch.zeros_like(a), []
        projected = [_linear(weights, "in_proj", x_t) for x_t in tokens]
        branch = _convolve(weights, [both[:channels] for both in projected])
        for both, u in zip(projected, branch, strict=True):
            u, z = u / (1 + torch.exp(-u)), both[channels:]
            selected = _linear(weights, "x_proj", u)
            low, b, c = selected[:rank], selected[rank : rank + num_states], selected[rank + num_states :]
            dt = torch.log1p(torch.exp(weights["dt_weight"] @ low + weights["dt_bias"]))
            h = torch.exp(dt[:, None] * a) * h + dt[:, None] * b[None, :] * u[:, None]
            y = h @ c + weights["skip"] * u
            outputs.append(_linear(weights, "out_proj", y * z / (1 + torch.exp(-z))))
        return outputs

    return _by_row(row, x, real)


def ngram_window(weights: Weights, x: Tensor, real: Tensor, *_: object, window: int) -> Tensor:
    """Bengio et al. 2003, equation 1: y = b + U tanh(d + H x), x the concatenation of the last `window` inputs, the
    oldest first. x (B, T, D), real (B, T)."""

    def row(tokens: Tensor) -> list[Tensor]:
        outputs = []
        for t in range(len(tokens)):
            seen = [tokens[s] if s >= 0 else torch.zeros_like(tokens[0]) for s in range(t - window + 1, t + 1)]
            outputs.append(_linear(weights, "out_proj", torch.tanh(_linear(weights, "in_proj", torch.cat(seen)))))
        return outputs

    return _by_row(row, x, real)


def cbow(weights: Weights, x: Tensor, real: Tensor, *_: object, window: int) -> Tensor:
    """Mikolov et al. 2013, section 3.1: the words in the window are averaged, and projected. x (B, T, D), real
    (B, T)."""

    def row(tokens: Tensor) -> list[Tensor]:
        means = [tokens[max(0, t - window + 1) : t + 1].mean(dim=0) for t in range(len(tokens))]
        return [_linear(weights, "out_proj", mean) for mean in means]

    return _by_row(row, x, real)


def causal_conv(weights: Weights, x: Tensor, real: Tensor, *_: object, dilation: int) -> Tensor:
    """Bai et al. 2018, section 3.2: F(s) = sum_i f(i) x_{s - d i}, then ReLU; here also projected. x (B, T, D), real
    (B, T)."""
    kernel = weights["conv.weight"]
    width = kernel.shape[2]

    def row(tokens: Tensor) -> list[Tensor]:
        outputs = []
        for t in range(len(tokens)):
            y = weights["conv.bias"]
            for i in range(width):
                if t - dilation * i >= 0:
                    y = y + kernel[:, :, width - 1 - i] @ tokens[t - dilation * i]
            outputs.append(_linear(weights, "out_proj", torch.clamp(y, min=0)))
        return outputs

    return _by_row(row, x, real)


def _convolve(weights: Weights, inputs: list[Tensor]) -> list[Tensor]:
    """Each channel's causal convolution with zeros before the first input."""
    kernel, bias = weights["conv.conv.weight"][:, 0], weights["conv.conv.bias"]
    width = kernel.shape[1]
    outputs = []
    for t in range(len(inputs)):
        y = bias
        for k in range(width):
            if t - k >= 0:
                y = y + kernel[:, width - 1 - k] * inputs[t - k]
        outputs.append(y)
    return outputs


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    y = weights[f"{name}.weight"] @ x
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def _by_row(row: Callable[[Tensor], list[Tensor]], x: Tensor, real: Tensor) -> Tensor:
    """(B, T, D): `row` over the real tokens of each row, zeros elsewhere."""
    rows = []
    for tokens, kept in zip(x, real, strict=True):
        outputs = iter(row(tokens[kept]))
        rows.append(torch.stack([next(outputs) if is_real else torch.zeros_like(tokens[0]) for is_real in kept]))
    return torch.stack(rows)
