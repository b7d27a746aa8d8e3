"""Purpose of residuals and the feed-forward in a deep stack of attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.nn.block import Block
from seqlab.nn.feed_forward import GELU, NoFeedForward
from seqlab.nn.residual import NoResidual
from seqlab.study.arms import Arm
from seqlab.study.charts import styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.sweeps.fits import score
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

BATCH, LENGTH, WIDTH, DEPTH = 8, 32, 64, 16
DRAWS = 8
"""Stacks drawn at initialisation for each seed, whose logarithms are averaged."""
NOTHING = 1e-20
"""Floor for logarithms: equal tokens count as this far apart."""
FORMS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no residuals": {"residual": NoResidual},
    "no residuals, no feed-forward": {"residual": NoResidual, "ffn": NoFeedForward},
    "no norms": {"norm_place": "none"},
    "no feed-forward": {"ffn": NoFeedForward},
}
AVERAGE = "every layer the mean of the tokens"
SQUASHED = "sixteen layers of tanh(x / 2)"
EQUAL = Rule("log10 of how far the tokens lie from their mean after 8 layers, over their size,", high=-3.0, beyond=2.0)
VANISHED = Rule(
    f"log10 of the gradient that reaches the input of {DEPTH} layers, over that of the last layer's,", high=-2, beyond=1
)
WORSE = Rule(
    "the validation loss without it minus that of the whole stack, in nats a character,", low=0.02, beyond=0.01
)
DEEPER = Rule("validation loss of 2 blocks minus that of 16, in nats a character,", low=0.02, beyond=0.01)
DEPTHS = (2, 4, 8, 16)
WHOLE, WITHOUT = ({depth: f"{name}, {depth} deep" for depth in DEPTHS} for name in ("whole", "no residuals"))
RMS, STILL, DEEP = "other norms", "not trained", "16 blocks in place of 2"
TRAINED_AND_NOT = (
    Control(STILL, WORSE, True, "Its learning rate is nearly zero."),
    Control(RMS, Rule(WORSE.quantity, low=0.2, beyond=0.1), False, "It differs in nothing that the claim is about."),
)
LINEAR = "no feed-forward, 2 deep"


class Layers(Study):
    name = "layers"
    question = "What are residuals and the feed-forward for?"
    matched = (
        f"At initialisation: encoders of {WIDTH} channels without positions, {LENGTH} random vectors, norms before "
        f"each branch, in float64, the mean of {DRAWS} draws a seed (one in the first runs, which did not decide the "
        "gradient). Trained: character models of CPython's documentation, attention with learned "
        "positions, their feed-forward (or without it their width) made so wide that all of a depth have as many "
        "parameters, each at its best of three learning rates. One control was replaced after the first runs: norms "
        "after each branch too are another model. Depths 4 and 16 were added after the verdict on 2 and 8, and "
        "the claim that more layers help after that."
    )
    why = (
        "Attention averages, and an average of averages soon is the same for every token; what a residual adds is "
        "the token itself. With norms the gradient does not vanish without residuals: it is divided by the size of "
        "what it passes. What is lost is what tells tokens apart, and that a deep stack cannot learn back."
    )
    change = "Initialisations that begin near the identity, with which deep stacks without residuals have been trained."
    claims = (
        Claim(
            "equal",
            "Without residuals the tokens of a deep stack become equal.",
            "L2 and L3, claims 20 and 21",
            ("no residuals", "no residuals, no feed-forward"),
            EQUAL,
            (
                Control(AVERAGE, EQUAL, True, "Equal is what they then are."),
                Control("whole", EQUAL, False, "Each token is added to what it is told."),
            ),
        ),
        Claim(
            "gradient",
            "Without residuals the gradient vanishes on its way through a deep stack.",
            "L2 and L3, claim 21",
            ("gradient, no residuals", "gradient, no residuals, no feed-forward"),
            VANISHED,
            (
                Control(f"gradient, {SQUASHED}", VANISHED, True, "Each layer halves it."),
                Control("gradient, whole", VANISHED, False, "A sum passes it on whole."),
            ),
        ),
        Claim(
            "residuals",
            "Without residuals a stack trains worse.",
            "L2 and L3, claim 21",
            tuple(WITHOUT.values()),
            WORSE,
            TRAINED_AND_NOT,
        ),
        Claim(
            "deeper",
            "More layers always help.",
            "L2 and L3, claim 6",
            (DEEP,),
            DEEPER,
            TRAINED_AND_NOT,
        ),
        Claim(
            "feed-forward",
            "Attention only averages: without the feed-forward a stack is worse.",
            "L1, L2 and L3, claim 20",
            (LINEAR,),
            WORSE,
            TRAINED_AND_NOT,
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 300 if scale == "cpu" else 3000
        fit = (
            *("--config=lm/attention", "--data.batch_size=16", "--model.model.d_model=64", "--model.warmup_steps=30"),
            *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps // 2}", "--match=params"),
        )

        def arm(name: str, depth: int, *own: str, rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)) -> Arm:
            by = "d_model" if NoFeedForward.__name__ in " ".join(own) else "ffn.d_ff"
            size = (f"--model.model.num_layers={depth}", f"--to={21_000 + 50_000 * depth}", f"--match_by={by}")
            return Arm(name, (*fit, *size, *own), rates)

        residual, block = "--model.model.block.residual=NoResidual", "--model.model.block"
        return (
            *(arm(name, depth) for depth, name in WHOLE.items()),
            *(arm(name, depth, residual) for depth, name in WITHOUT.items()),
            arm(LINEAR, 2, f"{block}.ffn=NoFeedForward"),
            arm(RMS, 2, f"{block}.norm=RMSNorm"),
            arm(STILL, 2, rates=(1e-9,)),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        values, points = dict[str, float](), list[dict[str, Any]]()
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            for name, options in FORMS.items():
                drawn = [through(stack(**options)) for _ in range(1 if scale == "smoke" else DRAWS)]
                values[name] = fmean(logarithm(spreads[7]) for spreads, _ in drawn)
                values[f"gradient, {name}"] = fmean(logarithm(grads[0] / grads[-1]) for _, grads in drawn)
                rows = enumerate(zip(*drawn[0], strict=True), start=1)
                points += [{"form": name, "layer": at, "spread": far, "gradient": grad} for at, (far, grad) in rows]
            values[AVERAGE] = logarithm(through([Mean() for _ in range(DEPTH)])[0][7])
            gradients = through([Squash() for _ in range(DEPTH)])[1]
            values[f"gradient, {SQUASHED}"] = logarithm(gradients[0] / gradients[-1])
        if not runs:
            missing = "no model is trained at smoke scale"
            return Measured(values, points, dict.fromkeys(("residuals", "deeper", "feed-forward"), missing))
        loss = {name: score(run, "val/loss") for name, run in runs.items()}
        depth = {name: next((of for of in DEPTHS if f", {of} deep" in name), DEPTHS[0]) for name in loss}
        values |= {name: of - loss[WHOLE[depth[name]]] for name, of in loss.items()}
        values[DEEP] = loss[WHOLE[DEPTHS[0]]] - loss[WHOLE[DEPTHS[-1]]]
        points += [{"model": name, "loss": of, "depth": depth[name]} for name, of in loss.items()]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        if claim.key in ("residuals", "deeper"):
            compared = [row for row in points if row.get("model") in (*WHOLE.values(), *WITHOUT.values())]
            rows = [row | {"form": row["model"].partition(",")[0]} for row in compared]
            lines: Any = by_depth(rows)
            lines.layer[1].encoding.shape["legend"] = None  # that of the colours says the same
            value, of = alt.X("loss:Q", title="validation loss, nats"), alt.Y("form:N", title=None)
            return styled(with_slider(lines, rows, "depth", value, of, "blocks"))
        if claim.key == "feed-forward":
            base = alt.Chart(alt.InlineData(values=[row for row in points if row.get("depth") == DEPTHS[0]])).encode(
                alt.X("loss:Q", title="validation loss, nats (less is better)", scale=alt.Scale(zero=False)),
                alt.Y("model:N", title=None, sort="x"),
                tooltip=["model:N", "seed:O", "loss:Q"],
            )
            return styled(base.mark_point(filled=True, size=70).properties(width=200, height=alt.Step(20)))
        quantity, title, count = {
            "equal": ("spread", ["how far tokens lie from", "their mean, over their size"], 5),
            "gradient": ("gradient", "gradient at the layer's input", 2),
        }[claim.key]
        rows, forms = [row for row in points if "form" in row], alt.Scale(domain=[*FORMS])
        scale = alt.Scale(type="log", clamp=True, domain=[1e-17, 1] if claim.key == "equal" else alt.Undefined)
        powers = alt.Axis(format="~e", tickCount=count)
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("layer:Q", title="layer"),
            alt.Y(f"mean({quantity}):Q", title=title, scale=scale, axis=powers),
            *(told("form:N", title=None, scale=forms) for told in (alt.Color, alt.Shape, alt.StrokeDash)),
        )
        lines = (base.mark_line() + base.mark_point(filled=True, size=40)).properties(width=200, height=240)
        value, of = alt.X(f"{quantity}:Q", title=title, axis=powers), alt.Y("form:N", title=None, sort=[*FORMS])
        return styled(with_slider(lines, rows, "layer", value, of, "layer"))


def by_depth(rows: Points) -> TopLevelMixin:
    """The loss of each seed over the depth, with residuals and without."""
    import altair as alt

    forms = [row | {"form": row["model"].partition(",")[0]} for row in rows]
    told = [channel("form:N", title=None, sort=["whole"]) for channel in (alt.Color, alt.Shape)]
    depths = alt.X("depth:Q", title="blocks", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=[*DEPTHS]))
    height = alt.Y("loss:Q", title="validation loss, nats", scale=alt.Scale(zero=False))
    base = alt.Chart(alt.InlineData(values=forms)).encode(
        depths, height, *told, tooltip=["model:N", "seed:O", "loss:Q"]
    )
    lines = base.mark_line().encode(alt.Detail("seed:O"))
    return styled((lines + base.mark_point(filled=True, size=60)).properties(width=220, height=200))


def stack(**options: Any) -> list[nn.Module]:
    """Blocks of an encoder with these options."""
    make = partial(Block, ffn=GELU) if "ffn" not in options else Block
    mixers = [Attention(WIDTH, num_heads=4, pattern=Bidirectional) for _ in range(DEPTH)]
    return [make(WIDTH, mixer, **options) for mixer in mixers]


def through(layers: Sequence[nn.Module]) -> tuple[list[float], list[float]]:
    """Spread of tokens after each layer, over random vectors, and the gradient norm of a random sum of the last outputs
    at each layer's input."""
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs, spreads = [x], list[float]()
    for layer in layers:
        out = layer.double()(inputs[-1])
        inputs.append(out[0] if isinstance(out, tuple) else out)
        spreads.append(spread(inputs[-1].detach()))
    gradients = torch.autograd.grad((inputs[-1] * torch.randn_like(x)).sum(), inputs[:-1])
    return spreads, [float(one.norm()) for one in gradients]


def spread(x: Tensor) -> float:
    """Distance of tokens (B, T, D) from their mean over T, relative to their size: 0 where all are equal."""
    return float((x - x.mean(1, keepdim=True)).norm() / x.norm())


def logarithm(value: float) -> float:
    return math.log10(max(value, NOTHING))


class Mean(nn.Module):
    """Replaces every token of x (B, T, D) by their mean."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True).expand_as(x)


class Squash(nn.Module):
    """tanh(x / 2), whose slope is at most a half."""

    def forward(self, x: Tensor) -> Tensor:
        return (x / 2).tanh()
