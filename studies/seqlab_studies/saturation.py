"""Saturated activations as a cause of vanishing gradients through time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqlab.probes.gates import Activations, activations, saturated
from seqlab.probes.through_time import gradients_back
from seqlab.recurrence import LSTM, RNN
from seqlab.recurrence.fused import FusedRecurrence
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.gradients import (
    BACK,
    BATCH,
    BIASES,
    LENGTH,
    NOTHING,
    SAVED,
    WIDTH,
    gradient_lines,
    lifted,
    logarithm,
    orthogonal,
    with_gradients,
)

if TYPE_CHECKING:
    from altair import TopLevelMixin

RATIO = f"log10 of the gradient of an output by the input {BACK} steps before, over that by its own input,"
GONE, THERE = Rule(RATIO, high=-7, beyond=5), Rule(RATIO, low=-2, beyond=5)
HALF = Rule("share of the activations in question that is saturated", low=0.5, possible=(0, 1))
NOT, INPUTS = "RNN not saturated", "RNN saturated by inputs"
WEIGHTS = "RNN saturated by its weights"
SHUT, OPEN = "LSTM, forget gates shut", "LSTM, forget gates open"
HALVES, USUAL = "h = h / 2 + x", "usual RNN"
ONE, ALL = "saturated slopes 1", "all slopes 1"
LEAST = "the least share among those said to be saturated"


class Saturation(Study):
    name = "saturation"
    question = "Do saturated activations make the gradient vanish?"
    matched = (
        f"At initialisation, {WIDTH} channels over {LENGTH} random vectors, in float64. The RNNs' recurrent matrix "
        "is orthogonal: without their slopes the gradient would pass any number of steps whole. Inputs are 0.01 in "
        "size, 5 where these saturate; biases are 8 where these do, as 3 in a trial left 8 in 100 unsaturated; the "
        "matrix is 5 times an orthogonal one where that does. Forget gates have a bias of -5 or 5. Saturated is a tanh "
        "beyond 0.9, and a gate below 0.1 or above 0.9. "
        "The usual RNN is PyTorch's. Slopes are put to 1 in the backward pass alone."
    )
    why = (
        "A saturated tanh has a slope near 0, by which each step multiplies. But it multiplies by the recurrent matrix "
        "too: where large weights are what saturates, they make up for the slopes. A gate that is saturated open "
        "multiplies by nearly 1. And at the usual initialisation the matrix alone makes the gradient vanish."
    )
    change = "Another recurrent matrix: its size decides with the slopes."
    claims = (
        Claim(
            "vanishes",
            "Saturated activations make the gradient vanish.",
            "L1, L2 and L4, claim 7",
            (INPUTS, BIASES, WEIGHTS, SHUT, OPEN),
            GONE,
            (
                Control(HALVES, GONE, True, "Each step halves it: 2 to the power of -100."),
                Control(NOT, GONE, False, "The same network with small inputs: its slopes are nearly 1."),
                Control(LEAST, HALF, True, "They must be saturated."),
            ),
        ),
        Claim(
            "reason",
            "It is saturation that makes the gradient of an RNN vanish: without it, it would not.",
            "L1, L2 and L4, claim 7",
            (f"{USUAL}, {ONE}", f"{USUAL}, {ALL}"),
            THERE,
            (
                Control(SAVED, THERE, True, "Nothing but its slopes made it vanish."),
                Control(BIASES, THERE, False, "The same with the slopes that it has."),
            ),
        ),
    )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64)
            inputs = {INPUTS: 5.0, USUAL: 1.0}
            models: dict[str, FusedRecurrence] = {
                NOT: orthogonal(),
                INPUTS: orthogonal(),
                BIASES: orthogonal(bias=8.0),
                WEIGHTS: orthogonal(gain=5.0),
                SHUT: LSTM(WIDTH, forget_bias=-5.0).double(),
                OPEN: LSTM(WIDTH, forget_bias=5.0).double(),
                USUAL: RNN(WIDTH).double(),
            }
            back, shares = dict[str, Tensor](), dict[str, float]()
            for name, model in models.items():
                given = (x * inputs.get(name, 0.01)).requires_grad_()
                back[name], shares[name] = gradients_back(given, model(given)[0]), share(model, given)
                if name in (BIASES, USUAL):
                    saved = SAVED if name == BIASES else f"{name}, {ONE}"
                    back[saved] = gradients_back(given, lifted(model, given))
            back[f"{USUAL}, {ALL}"] = gradients_back(given, lifted(models[USUAL], given, least=0.0))
        back[HALVES] = torch.tensor(0.5, dtype=torch.float64) ** torch.arange(LENGTH)
        values = {name: logarithm(of[BACK]) for name, of in back.items()}
        values[LEAST] = min(shares[name] for name in (INPUTS, BIASES, WEIGHTS, SHUT, OPEN))
        points = [
            {"model": name, "back": at, "gradient": max(float(of[at]), NOTHING), "saturated": shares.get(name)}
            for name, of in back.items()
            for at in range(0, BACK + 1, 5)
        ]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        names = [*claim.cases, *(control.case for control in claim.controls if control.case != LEAST)]
        names += [USUAL] if claim.key == "reason" else []
        rows, scale = [row for row in points if row["model"] in names], alt.Scale(domain=names)
        told = [channel("model:N", title=None, scale=scale) for channel in (alt.Color, alt.StrokeDash)]
        return with_gradients(rows, gradient_lines(rows, *told), names)


def share(model: FusedRecurrence, x: Tensor) -> float:
    """Share of an RNN's outputs, or of an LSTM's forget gates, that is saturated over x (B, T, D)."""
    (layer,) = activations(model, x.detach())
    of: Activations = {name: layer[name] for name in ("hidden", "forget") if name in layer}
    (found,) = saturated([of]).values()
    return found
