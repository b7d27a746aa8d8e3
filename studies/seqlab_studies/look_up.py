"""Attention as a soft look-up: what it gives is a mean of what it looks at, whose weights sum to 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqlab.attention import (
    AdditiveAttention,
    Attention,
    AttentionSink,
    CrossAttention,
    DifferentialAttention,
    Dot,
    MultiplicativeAttention,
)
from seqlab.attention.patterns import Bidirectional
from seqlab.mixer import Mixer
from seqlab.study.charts import edge, styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

WIDTH, PLACES = 16, 7
IS_CONVEX = Rule("log10 of the largest error of a convex combination", high=-12, beyond=9)
MEAN, WINDOW, SINK, DIFFERENCE = "mean of the memory", "Luong's local window", "attention sink", "differential"


class LookUp(Study):
    name = "look-up"
    question = "Is attention a soft look-up?"
    matched = (
        f"Random weights and inputs in float64: {WIDTH} channels, {PLACES} places. The error is the largest of three: "
        "how far a sum of weights is from 1, how far a weight is below 0, and, where the places hold one value, how "
        "far the output is from that of this value alone. The last asks the layer, not the weights that it shows."
    )
    why = "Softmax makes weights that are positive and sum to 1, and a sum of values with such weights lies among them."
    change = (
        "What the field added later: a local window times a Gaussian, a sink that takes a share and gives nothing, "
        "the difference of two maps. Each is a control here, and none is a convex combination."
    )
    claims = (
        Claim(
            "soft",
            "Attention is a soft look-up: weights sum to 1, and the output is a convex combination.",
            "L0 to L4, claim 11",
            ("Bahdanau's", "dot product with the state before", "Luong's", "cross-attention", "self-attention"),
            IS_CONVEX,
            (
                Control(MEAN, IS_CONVEX, True, "A mean is a convex combination."),
                Control(WINDOW, IS_CONVEX, False, "Its weights are multiplied by a Gaussian and sum to less."),
                Control(SINK, IS_CONVEX, False, "A part of its weights goes to nothing."),
                Control(DIFFERENCE, IS_CONVEX, False, "It subtracts weights from weights."),
            ),
            exact=True,
        ),
    )

    @torch.no_grad()
    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            values = {name: math.log10(max(error, 1e-20)) for name, error in errors()}
        return Measured(values, [{"case": case, "value": value} for case, value in values.items()])

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        names = [*claim.cases, *(control.case for control in claim.controls)]
        shown = [
            row | {"error": 10 ** row["value"], "is": "case" if row["case"] in claim.cases else "control"}
            for row in points
        ]
        dots = alt.Chart(alt.InlineData(values=shown)).encode(
            x=alt.X(
                "error:Q",
                title="largest error, 1 = as large as a weight can be",
                scale=alt.Scale(type="log", domain=[1e-17, 1]),
                axis=alt.Axis(format="~e", values=[1e-15, 1e-10, 1e-5, 1]),
            ),
            y=alt.Y("case:N", title=None, sort=names),
            shape=alt.Shape("is:N", title=None),
            color=alt.Color("is:N", title=None),
            tooltip=["case:N", "error:Q"],
        )
        line = edge("x", 10**IS_CONVEX.high, "rounding")
        return styled((line + dots.mark_point(filled=True, size=70)).properties(width=180, height=alt.Step(22)))


def errors() -> Iterator[tuple[str, float]]:
    """Deviation of each attention from a convex combination, with random weights in float64."""
    memories: dict[str, Callable[[int, int], Mixer]] = {
        "Bahdanau's": AdditiveAttention,
        "dot product with the state before": partial(AdditiveAttention, score=Dot),
        "Luong's": MultiplicativeAttention,
        "cross-attention": CrossAttention,
        WINDOW: partial(MultiplicativeAttention, window=2),
    }
    both_ways = partial(Attention, pattern=Bidirectional, bias=True)
    selves: dict[str, Callable[[int, int], Mixer]] = {
        "self-attention": both_ways,
        SINK: partial(both_ways, parts=[AttentionSink]),
    }
    yield MEAN, not_convex(torch.full((1, 1, 1, PLACES), 1 / PLACES, dtype=torch.float64))
    for name, make in memories.items():
        yield name, of_memory(drawn(make))
    for name, make in selves.items():
        yield name, of_itself(drawn(make))
    x = torch.randn(2, PLACES, WIDTH, dtype=torch.float64)
    yield DIFFERENCE, not_convex(drawn(DifferentialAttention).attention_weights(x))


def drawn(make: Callable[[int, int], Mixer]) -> Any:
    """A mixer whose weights are all random: one that begins at zero would hide its effect."""
    mixer = make(WIDTH, 0).double().eval()
    for weight in mixer.parameters():
        nn.init.normal_(weight, std=WIDTH**-0.5)
    return mixer


def not_convex(weights: Tensor) -> float:
    """Largest deviation of a sum of weights (B, H, T, S) from 1, or of a weight below 0."""
    return float(torch.maximum((weights.sum(dim=-1) - 1).abs().max(), -weights.min()))


def of_memory(mixer: Any) -> float:
    """The weights' error, and the output's where every place of the memory holds one value: a convex combination of
    that value is itself, as if the memory had one place."""
    x, memory = torch.randn(2, 2, PLACES, WIDTH, dtype=torch.float64).unbind()
    many, one = mixer.init_state(2, memory), mixer.init_state(2, memory[:, :1])
    error = not_convex(mixer.attention_weights(x, many))
    same = one["memory_v"].expand_as(many["memory_v"])
    return max(error, float((mixer(x, many | {"memory_v": same})[0] - mixer(x, one)[0]).abs().max()))


def of_itself(mixer: Any) -> float:
    """The same of self-attention, whose values are one where their projection is only its bias."""
    x = torch.randn(2, PLACES, WIDTH, dtype=torch.float64)
    error = not_convex(mixer.attention_weights(x))
    nn.init.zeros_(mixer.v_proj.weight)
    alone = mixer.out_proj(mixer.v_proj.bias)
    return max(error, float((mixer(x)[0] - alone).abs().max()))
