"""Recurrent decoders that look at a memory, as their papers write them: one row and one step at a time, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def additive_attention(
    weights: Weights,
    x: Tensor,
    real: Tensor,
    *_: object,
    memory: Tensor,
    memory_mask: Tensor,
    score: str = "concat",
) -> Tensor:
    """Bahdanau et al. 2015, section 3.1 and appendix A.2.2, from s_0 = 0 and with cuDNN's reset gate. Zeros at pads.

    Args:
        x: (B, T, D); x_t is the paper's E y_{t-1}.
        real: (B, T) bool; a pad is not there.
        memory: (S, D), the annotations h_j, of which `memory_mask` (S,) is real.
        score: of s_{t-1} and h_j.
    """
    annotations = memory[memory_mask]
    y = torch.zeros_like(x)
    for row in range(len(x)):
        s = torch.zeros_like(x[row, 0])
        for t in real[row].nonzero()[:, 0].tolist():
            a = _softmax(_score(weights, score, s, annotations))
            c = sum(a_j * h_j for a_j, h_j in zip(a, annotations, strict=True))
            s = _gru(weights, "cell.", "", torch.cat((x[row, t], c)), s)
            t_tilde = weights["out_proj.weight"] @ torch.cat((s, x[row, t], c))
            maxout = torch.stack([torch.maximum(t_tilde[2 * j], t_tilde[2 * j + 1]) for j in range(len(s))])
            y = y.index_put((torch.tensor(row), torch.tensor(t)), maxout)
    return y


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
    """Luong et al. 2015, equations 5 to 10, from a state of zeros. Zeros at pads.

    Where there are weights for it (`in_proj`), a step reads the attentional vector before beside its input.

    Args:
        x: (B, T, D).
        real: (B, T) bool; a pad is not there.
        memory: (S, D), the source's hidden states, of which `memory_mask` (S,) is real.
        score: "dot", "general" or "concat" of equation 8.
        window: the D of local-p.
    """
    source = memory[memory_mask]
    y = torch.zeros_like(x)
    for row in range(len(x)):
        h = c_lstm = fed = torch.zeros_like(x[row, 0])
        for t in real[row].nonzero()[:, 0].tolist():
            inputs = x[row, t]
            if "in_proj.weight" in weights:
                inputs = weights["in_proj.weight"] @ torch.cat((inputs, fed))
            if cell == "gru":
                h = _gru(weights, "recurrence.cell.", "_l0", inputs, h)
            else:
                h, c_lstm = _lstm(weights, "recurrence.cell.", "_l0", inputs, h, c_lstm)
            scores = _score(weights, score, h, source)
            if window is None:
                a = _softmax(scores)
            else:
                v, w = weights["window.v"], weights["window.in_proj.weight"]
                p = len(source) / (1 + torch.exp(-(v @ torch.tanh(w @ h))))  # (9)
                inside = [s for s in range(len(source)) if p - window <= s <= p + window]
                aligned = dict(zip(inside, _softmax(scores[inside]), strict=True))
                zero, sigma = torch.zeros_like(p), window / 2
                a = torch.stack(
                    [aligned.get(s, zero) * torch.exp(-((s - p) ** 2) / (2 * sigma**2)) for s in range(len(source))]
                )  # (10)
            context = sum(a_s * h_s for a_s, h_s in zip(a, source, strict=True))
            fed = torch.tanh(weights["out_proj.weight"] @ torch.cat((context, h)))  # (5)
            y = y.index_put((torch.tensor(row), torch.tensor(t)), fed)
    return y


def _score(weights: Weights, name: str, h: Tensor, source: Tensor) -> Tensor:
    """(S,): Luong's equation 8, whose "concat" is Bahdanau's, with W_a = [W, U]."""
    if name == "dot":
        return torch.stack([h @ h_s for h_s in source])
    if name == "general":
        return torch.stack([h @ (weights["score.k_proj.weight"] @ h_s) for h_s in source])
    w_a = torch.cat((weights["score.q_proj.weight"], weights["score.k_proj.weight"]), dim=1)
    return torch.stack([weights["score.v"] @ torch.tanh(w_a @ torch.cat((h, h_s))) for h_s in source])


def _softmax(scores: Tensor) -> Tensor:
    return torch.exp(scores) / torch.exp(scores).sum()


def _gates(weights: Weights, cell: str, suffix: str, side: str, x: Tensor, num_gates: int) -> tuple[Tensor, ...]:
    return (weights[f"{cell}weight_{side}{suffix}"] @ x + weights[f"{cell}bias_{side}{suffix}"]).chunk(num_gates)


def _gru(weights: Weights, cell: str, suffix: str, x: Tensor, h: Tensor) -> Tensor:
    x_r, x_z, x_n = _gates(weights, cell, suffix, "ih", x, 3)
    h_r, h_z, h_n = _gates(weights, cell, suffix, "hh", h, 3)
    z = torch.sigmoid(x_z + h_z)
    return (1 - z) * torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n) + z * h


def _lstm(weights: Weights, cell: str, suffix: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    sides = zip(_gates(weights, cell, suffix, "ih", x, 4), _gates(weights, cell, suffix, "hh", h, 4), strict=True)
    i, f, g, o = (from_x + from_h for from_x, from_h in sides)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
