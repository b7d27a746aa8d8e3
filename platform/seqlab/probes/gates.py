"""Gate activations of RNN, LSTM and GRU in a forward pass, and their saturated fraction.

B batch, T length, W width of a direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.mixer import State
from seqlab.nn.scan import Carry
from seqlab.recurrence.fused import FusedRecurrence, Weights

Activations = dict[str, Tensor]
"""Activations of one layer, by name: sigmoid `GATES` and tanhs, (B, T, W) each; arbitrary at padding."""

GATES = ("input", "forget", "output", "reset", "update")
LOW, HIGH = 0.1, 0.9
"""Bounds beyond which a gate is saturated; a tanh is saturated if its absolute value exceeds `HIGH`. There the slopes
are 36% and 19% of their maxima, 1/4 and 1."""


def activations(
    mixer: FusedRecurrence, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None
) -> list[Activations]:
    """Activations of each layer and direction, given the arguments of `Mixer.forward`. An LSTM has the gates "input",
    "forget" and "output" and the tanhs "candidate" and "cell"; a GRU has "reset", "update" and "candidate"; an RNN has
    "hidden" with tanh, and no activations with relu.
    """
    equations, found = EQUATIONS[mixer.cell.mode], []
    for k, directions in enumerate(mixer.weights()):
        sides = []
        for backwards, weights in enumerate(directions):
            start = x.new_zeros(len(x), mixer.cell.hidden_size)
            carry = tuple(start if state is None else state[name][:, k] for name in mixer.state_names)
            steps: list[tuple[Tensor, Activations]] = []
            places = range(x.shape[1])
            for t in reversed(places) if backwards else places:
                new, seen = equations(x[:, t], carry, weights)
                if pad_mask is not None:
                    real = pad_mask[:, t, None]
                    new = tuple(torch.where(real, after, before) for after, before in zip(new, carry, strict=True))
                carry = new
                steps.append((carry[0], seen))
            if backwards:
                steps.reverse()
            sides.append(torch.stack([h for h, _ in steps], dim=1))
            found.append({name: torch.stack([seen[name] for _, seen in steps], dim=1) for name in steps[0][1]})
        x = torch.cat(sides, dim=-1)
    return found


def saturated(layers: Iterable[Activations], pad_mask: Tensor | None = None) -> dict[str, float]:
    """Saturated fraction of "gates" and of "tanhs" at real tokens; a kind without activations is left out."""
    kinds: dict[str, list[Tensor]] = {"gates": [], "tanhs": []}
    for layer in layers:
        for name, y in layer.items():
            beyond = (y < LOW) | (y > HIGH) if name in GATES else y.abs() > HIGH
            kinds["gates" if name in GATES else "tanhs"].append(beyond if pad_mask is None else beyond[pad_mask])
    return {kind: float(torch.stack(of).double().mean()) for kind, of in kinds.items() if of}


def _lstm(x_t: Tensor, carry: Carry, weights: Weights) -> tuple[Carry, Activations]:
    of_x, of_h = _products(x_t, carry[0], weights)
    i, f, g, o = (of_x + of_h).chunk(4, dim=-1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * carry[1] + i * g
    cell = c.tanh()
    return (o * cell, c), {"input": i, "forget": f, "output": o, "candidate": g, "cell": cell}


def _gru(x_t: Tensor, carry: Carry, weights: Weights) -> tuple[Carry, Activations]:
    of_x, of_h = _products(x_t, carry[0], weights)
    (r, z, n), (r_h, z_h, n_h) = of_x.chunk(3, dim=-1), of_h.chunk(3, dim=-1)
    r, z = (r + r_h).sigmoid(), (z + z_h).sigmoid()
    n = (n + r * n_h).tanh()
    return ((1 - z) * n + z * carry[0],), {"reset": r, "update": z, "candidate": n}


def _tanh(x_t: Tensor, carry: Carry, weights: Weights) -> tuple[Carry, Activations]:
    of_x, of_h = _products(x_t, carry[0], weights)
    h = (of_x + of_h).tanh()
    return (h,), {"hidden": h}


def _relu(x_t: Tensor, carry: Carry, weights: Weights) -> tuple[Carry, Activations]:
    of_x, of_h = _products(x_t, carry[0], weights)
    return ((of_x + of_h).relu(),), {}


def _products(x_t: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    w_ih, w_hh, b_ih, b_hh = weights
    return F.linear(x_t, w_ih, b_ih), F.linear(h, w_hh, b_hh)


EQUATIONS: dict[str, Callable[[Tensor, Carry, Weights], tuple[Carry, Activations]]] = {
    "RNN_TANH": _tanh,
    "RNN_RELU": _relu,
    "LSTM": _lstm,
    "GRU": _gru,
}
"""Equations of one step, keyed by the `mode` of PyTorch's layers."""
