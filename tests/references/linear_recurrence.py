"""Linear recurrences and windows as their papers' equations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.naive import Weights, in_rows, in_steps, linear, short_conv, sigmoid, swish


def min_gru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Feng et al. 2024, section 3.1.3: z_t = sigmoid(Linear(x_t)), h~_t = Linear(x_t),
    h_t = (1 - z_t) * h_{t-1} + z_t * h~_t."""

    def step(h: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        z, candidate = linear(weights, "in_proj", x_t).chunk(2)
        h = (1 - sigmoid(z)) * h + sigmoid(z) * candidate
        return h, linear(weights, "out_proj", h)

    return in_steps(step, 0.0, x, real)


def min_lstm(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Feng et al. 2024, section 3.2.3: f_t, i_t = sigmoid(Linear(x_t)), f' = f/(f + i), i' = i/(f + i),
    h_t = f' * h_{t-1} + i' * h~_t."""

    def step(h: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        f, i, candidate = linear(weights, "in_proj", x_t).chunk(3)
        f, i = sigmoid(f), sigmoid(i)
        h = f / (f + i) * h + i / (f + i) * candidate
        return h, linear(weights, "out_proj", h)

    return in_steps(step, 0.0, x, real)


def lru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Orvieto et al. 2023, appendix A: lambda = exp(-exp(nu) + i exp(theta)); h_t = lambda h_{t-1} + gamma B x_t;
    y_t = Re(C h_t) + D x_t."""
    decay = torch.exp(torch.complex(-torch.exp(weights["nu_log"]), torch.exp(weights["theta_log"])))
    b = torch.complex(*weights["in_proj.weight"].chunk(2, dim=0))
    c_real, minus_c_imag = weights["out_proj.weight"].chunk(2, dim=1)
    c = torch.complex(c_real, -minus_c_imag)

    def step(h: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        h = decay * h + torch.exp(weights["gamma_log"]) * (b @ x_t.to(b.dtype))
        return h, (c @ h).real + weights["skip"] * x_t

    return in_steps(step, 0.0, x, real)


def linoss(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Rusch & Rus 2025, equation 3, the implicit step as the solution of a system of two equations for each oscillator:
    z_t = z_{t-1} + d (-w^2 y_t + B x_t), y_t = y_{t-1} + d z_t."""
    square, d = weights["frequency"] ** 2, sigmoid(weights["step_size"])
    one = torch.ones_like(d)
    system = torch.stack((torch.stack((one, d * square), -1), torch.stack((-d, one), -1)), -2)  # (N, 2, 2)

    def step(state: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        force = d * (weights["in_proj.weight"] @ x_t)
        right = state.expand(len(d), 2) + torch.stack((force, torch.zeros_like(force)), -1)
        state = torch.linalg.solve(system, right.unsqueeze(-1)).squeeze(-1)
        y = weights["position_proj.weight"] @ state[:, 1] + weights["skip"] * x_t
        value, gate = linear(weights, "out_proj", y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))).chunk(2)
        return state, value * sigmoid(gate)

    return in_steps(step, torch.zeros(1, 2, dtype=x.dtype), x, real)


def s4d(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Gu et al. 2022, equation 2 (ZOH): A_bar = exp(dt A), B_bar = (dt A)^-1 (exp(dt A) - 1) dt B with B = 1; per
    channel h_t = A_bar h_{t-1} + B_bar x_t, y_t = 2 Re(C h_t) + D x_t; then GLU(Linear(GELU(y_t)))."""
    dt = torch.exp(weights["log_dt"])[:, None]
    a = torch.complex(-torch.exp(weights["log_decay"]), weights["frequency"])
    c = torch.complex(weights["c_real"], weights["c_imag"])
    a_bar = torch.exp(dt * a)
    b_bar = 1 / (dt * a) * (a_bar - 1) * dt

    def step(h: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        h = a_bar * h + b_bar * x_t[:, None]
        y = 2 * (c * h).sum(1).real + weights["skip"] * x_t
        gelu = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
        value, gate = linear(weights, "out_proj", gelu).chunk(2)
        return h, value * sigmoid(gate)

    return in_steps(step, 0.0, x, real)


def rg_lru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """De et al. 2024, section 2.4, equations 1 to 4, in the block of section 2.3: r_t = sigmoid(W_a x_t + b_a),
    i_t = sigmoid(W_x x_t + b_x), a_t = a^(c r_t) with a = sigmoid(-decay) and c = 8,
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t x_t); the authors' code does not scale the first input."""
    w_a = torch.block_diag(*weights["recurrent_gate_weight"]).T
    w_x = torch.block_diag(*weights["input_gate_weight"]).T
    a = sigmoid(-weights["decay"])

    def row(tokens: list[Tensor]) -> list[Tensor]:
        h, outputs = torch.zeros_like(a), []
        branch = short_conv(weights, [linear(weights, "in_proj", x_t) for x_t in tokens])
        for t, (x_t, u) in enumerate(zip(tokens, branch, strict=True)):
            r = sigmoid(w_a @ u + weights["recurrent_gate_bias"].flatten())
            i = sigmoid(w_x @ u + weights["input_gate_bias"].flatten())
            a_t = a ** (8 * r)
            h = a_t * h + (torch.sqrt(1 - a_t**2) if t else 1) * i * u
            gate = linear(weights, "gate_proj", x_t)
            gelu = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
            outputs.append(linear(weights, "out_proj", gelu * h))
        return outputs

    return in_rows(row, x, real)


def mamba(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    """Gu & Dao 2023, algorithm 2: A_bar = exp(dt A), B_bar = dt B; h_t = A_bar h_{t-1} + B_bar x_t, y_t = C h_t +
    D x_t, in the block of section 3.4, channel by channel."""
    a = -torch.exp(weights["a_log"])
    channels, num_states = a.shape
    rank = weights["dt_weight"].shape[1]

    def row(tokens: list[Tensor]) -> list[Tensor]:
        h, outputs = torch.zeros_like(a), []
        projected = [linear(weights, "in_proj", x_t) for x_t in tokens]
        branch = short_conv(weights, [both[:channels] for both in projected])
        for both, u in zip(projected, branch, strict=True):
            u, z = swish(u), both[channels:]
            low, b, c = linear(weights, "x_proj", u).split([rank, num_states, num_states])
            dt = torch.log1p(torch.exp(weights["dt_weight"] @ low + weights["dt_bias"]))
            h = torch.exp(dt[:, None] * a) * h + dt[:, None] * b[None, :] * u[:, None]
            y = h @ c + weights["skip"] * u
            outputs.append(linear(weights, "out_proj", y * swish(z)))
        return outputs

    return in_rows(row, x, real)


def ngram_window(weights: Weights, x: Tensor, real: Tensor, *_: object, window: int) -> Tensor:
    """Bengio et al. 2003, equation 1: y = b + U tanh(d + H x), x the concatenation of the last `window` inputs, the
    oldest first."""

    def step(seen: list[Tensor], x_t: Tensor) -> tuple[list[Tensor], Tensor]:
        seen = [*seen[1:], x_t]
        return seen, linear(weights, "out_proj", torch.tanh(linear(weights, "in_proj", torch.cat(seen))))

    return in_steps(step, [torch.zeros_like(x[0, 0])] * window, x, real)


def cbow(weights: Weights, x: Tensor, real: Tensor, *_: object, window: int) -> Tensor:
    """Mikolov et al. 2013, section 3.1: the words in the window are averaged, and projected."""

    def step(seen: list[Tensor], x_t: Tensor) -> tuple[list[Tensor], Tensor]:
        seen = [*seen, x_t][-window:]
        return seen, linear(weights, "out_proj", torch.stack(seen).mean(dim=0))

    return in_steps(step, [], x, real)


def causal_conv(weights: Weights, x: Tensor, real: Tensor, *_: object, dilation: int) -> Tensor:
    """Bai et al. 2018, section 3.2: F(s) = sum_i f(i) x_{s - d i}, then ReLU; here also projected."""
    kernel = weights["conv.weight"]
    width = kernel.shape[2]

    def step(read: list[Tensor], x_t: Tensor) -> tuple[list[Tensor], Tensor]:
        read, y = [*read, x_t], weights["conv.bias"]
        for i in range(width):
            if len(read) > dilation * i:
                y = y + kernel[:, :, width - 1 - i] @ read[-1 - dilation * i]
        return read, linear(weights, "out_proj", torch.clamp(y, min=0))

    return in_steps(step, [], x, real)
