"""Recurrent networks as their equations, by themselves and as decoders that look at a memory.

Weights carry the names of PyTorch's layers, whose rows stack the gates: (r, z, n) for GRU, (i, f, g, o) for LSTM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from references.naive import Weights, group_norm, in_rows, in_steps, linear, sigmoid, softmax, unrolled

Carry = tuple[Tensor, ...]
Step = Callable[[Weights, str, Tensor, Carry], Carry]


def rnn(weights: Weights, x: Tensor, real: Tensor, *_: object, relu: bool = False) -> Tensor:
    """Elman 1990: h_t = tanh(W x_t + b + U h_{t-1} + c), or relu."""

    def step(weights: Weights, cell: str, x_t: Tensor, carry: Carry) -> Carry:
        [(from_x, from_h)] = _sides(weights, cell, x_t, carry[0], 1)
        total = from_x + from_h
        return (torch.clamp(total, min=0) if relu else torch.tanh(total),)

    return _layers(step, weights, x, real, 1)


def gru(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    return _layers(_gru, weights, x, real, 1)


def lstm(weights: Weights, x: Tensor, real: Tensor, *_: object) -> Tensor:
    return _layers(_lstm, weights, x, real, 2)


def _gru(weights: Weights, cell: str, x: Tensor, carry: Carry) -> Carry:
    """Cho et al. 2014, with the reset gate after the recurrent product (as cuDNN): n_t = tanh(W_n x_t + b_n +
    r_t * (U_n h_{t-1} + c_n)), h_t = (1 - z_t) * n_t + z_t * h_{t-1}."""
    (h,) = carry
    (r_x, r_h), (z_x, z_h), (n_x, n_h) = _sides(weights, cell, x, h, 3)
    z = sigmoid(z_x + z_h)
    return ((1 - z) * torch.tanh(n_x + sigmoid(r_x + r_h) * n_h) + z * h,)


def _lstm(weights: Weights, cell: str, x: Tensor, carry: Carry) -> Carry:
    """Gers et al. 2000: c_t = f_t * c_{t-1} + i_t * g_t, h_t = o_t * tanh(c_t)."""
    h, c = carry
    i, f, g, o = (from_x + from_h for from_x, from_h in _sides(weights, cell, x, h, 4))
    c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(c), c


def _sides(weights: Weights, cell: str, x: Tensor, h: Tensor, num_gates: int) -> list[tuple[Tensor, Tensor]]:
    """Each gate's W x + b and U h + c. `cell` has a place for the side: "cell.{}_l0"."""
    sides = (
        (weights[cell.format(f"weight_{side}")] @ y + weights[cell.format(f"bias_{side}")]).chunk(num_gates)
        for side, y in (("ih", x), ("hh", h))
    )
    return list(zip(*sides, strict=True))


def _layers(step: Step, weights: Weights, x: Tensor, real: Tensor, num_entries: int) -> Tensor:
    """Runs `step` layer upon layer, from carries of zeros whose first entry is the output. A direction of its own
    (Schuster & Paliwal 1997) reads from the end, and stands beside the first."""
    places = [name.removeprefix("cell.weight_hh_") for name in weights if name.startswith("cell.weight_hh_")]

    def read(vectors: list[Tensor], place: str) -> list[Tensor]:
        def forward(carry: Carry, x_t: Tensor) -> tuple[Carry, Tensor]:
            carry = step(weights, f"cell.{{}}_{place}", x_t, carry)
            return carry, carry[0]

        zero = torch.zeros(weights[f"cell.weight_hh_{place}"].shape[1], dtype=x.dtype)
        if "reverse" in place:
            return unrolled(forward, (zero,) * num_entries, vectors[::-1])[::-1]
        return unrolled(forward, (zero,) * num_entries, vectors)

    def row(vectors: list[Tensor]) -> list[Tensor]:
        for layer in range(sum("reverse" not in place for place in places)):
            both = [read(vectors, place) for place in places if place.split("_")[0] == f"l{layer}"]
            vectors = [torch.cat(parts) for parts in zip(*both, strict=True)]
        return vectors

    return in_rows(row, x, real)


def slstm(weights: Weights, x: Tensor, real: Tensor, *_: object, num_heads: int) -> Tensor:
    """Beck et al. 2024, equations 8-14, not stabilised, the exponential gate for the input and a sigmoid to forget;
    then the norm of each head."""

    def step(carry: list[Carry], x_t: Tensor) -> tuple[list[Carry], Tensor]:
        later: list[Carry] = []
        heads = []
        for head, given in enumerate(linear(weights, "in_proj", x_t).chunk(num_heads)):
            h, c, n = carry[head]
            raw = given + h @ weights["feedback_weight"][head] + weights["bias"][head].flatten()
            z, i, f, o = raw.chunk(4)
            c, n = sigmoid(f) * c + torch.exp(i) * torch.tanh(z), sigmoid(f) * n + torch.exp(i)
            h = sigmoid(o) * c / n
            later.append((h, c, n))
            heads.append(group_norm(weights, h, head, 1e-5))
        return later, torch.cat(heads)

    zeros = torch.zeros(x.shape[-1] // num_heads, dtype=x.dtype)
    return in_steps(step, [(zeros,) * 3] * num_heads, x, real)


def additive_attention(
    weights: Weights, x: Tensor, real: Tensor, *_: object, memory: Tensor, memory_mask: Tensor, score: str = "concat"
) -> Tensor:
    """Bahdanau et al. 2015, section 3.1 and appendix A.2.2, from s_0 = 0 and with cuDNN's reset gate.

    Args:
        x: (B, T, D); x_t is the paper's E y_{t-1}.
        memory: (S, D), the annotations h_j, of which `memory_mask` (S,) is real.
        score: of s_{t-1} and h_j.
    """
    annotations = memory[memory_mask]

    def step(s: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor]:
        a = softmax(_score(weights, score, s, annotations))
        c = sum(a_j * h_j for a_j, h_j in zip(a, annotations, strict=True))
        (s,) = _gru(weights, "cell.{}", torch.cat((x_t, c)), (s,))
        t_tilde = weights["out_proj.weight"] @ torch.cat((s, x_t, c))
        return s, torch.stack([torch.maximum(t_tilde[2 * j], t_tilde[2 * j + 1]) for j in range(len(s))])

    return in_steps(step, torch.zeros_like(x[0, 0]), x, real)


def multiplicative_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    memory: Tensor,
    memory_mask: Tensor,
    score: str,
    cell: str = "lstm",
    window: int | None = None,
) -> Tensor:
    """Luong et al. 2015, equations 5 to 10, from a state of zeros.

    Where there are weights for it (`in_proj`), a step reads the attentional vector before beside its input.

    Args:
        memory: (S, D), the source's hidden states, of which `memory_mask` (S,) is real.
        score: "dot", "general" or "concat" of equation 8.
        window: the D of local-p.
    """
    source, advance = memory[memory_mask], _gru if cell == "gru" else _lstm

    def step(state: tuple[Carry, Tensor], x_t: Tensor) -> tuple[tuple[Carry, Tensor], Tensor]:
        carry, fed = state
        if "in_proj.weight" in weights:
            x_t = weights["in_proj.weight"] @ torch.cat((x_t, fed))
        carry = advance(weights, "recurrence.cell.{}_l0", x_t, carry)
        h = carry[0]
        scores = _score(weights, score, h, source)
        a = softmax(scores) if window is None else local(scores, h, window)
        context = sum(a_s * h_s for a_s, h_s in zip(a, source, strict=True))
        fed = torch.tanh(weights["out_proj.weight"] @ torch.cat((context, h)))  # (5)
        return (carry, fed), fed

    def local(scores: Tensor, h: Tensor, d: int) -> Tensor:
        v, w = weights["window.v"], weights["window.in_proj.weight"]
        p = len(source) * sigmoid(v @ torch.tanh(w @ h))  # (9)
        inside = [s for s in range(len(source)) if p - d <= s <= p + d]
        aligned = dict(zip(inside, softmax(scores[inside]), strict=True))
        zero, sigma = torch.zeros_like(p), d / 2
        gauss = [torch.exp(-((s - p) ** 2) / (2 * sigma**2)) for s in range(len(source))]
        return torch.stack([aligned.get(s, zero) * factor for s, factor in enumerate(gauss)])  # (10)

    zero = torch.zeros_like(x[0, 0])
    return in_steps(step, ((zero,) * (1 if cell == "gru" else 2), zero), x, real)


def _score(weights: Weights, name: str, h: Tensor, source: Tensor) -> Tensor:
    """(S,): Luong's equation 8, whose "concat" is Bahdanau's, with W_a = [W, U]."""
    if name == "dot":
        return torch.stack([h @ h_s for h_s in source])
    if name == "general":
        return torch.stack([h @ (weights["score.k_proj.weight"] @ h_s) for h_s in source])
    w_a = torch.cat((weights["score.q_proj.weight"], weights["score.k_proj.weight"]), dim=1)
    return torch.stack([weights["score.v"] @ torch.tanh(w_a @ torch.cat((h, h_s))) for h_s in source])
