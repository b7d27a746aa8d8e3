"""Purpose of dividing the scores by sqrt(d_k)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from seqlab.attention import Attention
from seqlab.attention.patterns import Bidirectional
from seqlab.study.arms import Arm
from seqlab.study.charts import styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.sweeps.fits import score
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

WIDTHS = (16, 64, 256, 1024)
BATCH, LENGTH = 8, 64
SATURATED = "scores 100 times as large"
AGAIN = "the same division, another draw"
PEAKED = Rule("the median over queries of the largest weight", low=0.5, beyond=0.1, possible=(0, 1))
VANISHES = Rule(
    "log10 of the gradient of a query without the division, over that with it, medians over queries,",
    high=-1.0,
    beyond=0.5,
)
WORSE = Rule("the validation loss without the division minus that with it, in nats a character,", low=0.02, beyond=0.01)
WITH, WITHOUT = "with it", "without it"


def trained(how: str, width: int) -> str:
    return f"d_k {width}, {how}"


class ScaleOfScores(Study):
    name = "scale-of-scores"
    question = "Why are the scores of attention divided by the square root of d_k?"
    matched = (
        f"At initialisation: one head over {BATCH} rows of {LENGTH} random tokens in float64, whose queries and keys "
        "have independent channels of variance 1, as Vaswani et al. 2017 assume; the gradient is of a random sum of "
        "the outputs. All are means of 1,024 / d_k draws a seed (one in the first runs, which did not decide d_k 16). "
        "Trained: character models of CPython's documentation, two layers with one head, so that d_k is the width; "
        "both forms have the same parameters and data, each its best of three learning rates."
    )
    why = (
        "A sum of d_k products has a standard deviation of sqrt(d_k), so that without the division one weight takes "
        "nearly all. The softmax then passes little gradient, but what passes is sqrt(d_k) times as large: the "
        "gradient of the query falls only where the first outweighs the second. In training the projections are "
        "learned, and begin small. At d_k 64 they make up for the division: 0.011 nats are lost without it. At d_k "
        "256 they do not: it is 0.285."
    )
    change = "Projections that keep the variance at 1 when training begins, or a larger d_k."
    claims = (
        Claim(
            "peaked",
            "Without the division one weight takes nearly all.",
            "L1 and L3, claim 18",
            tuple(f"d_k {width}" for width in WIDTHS),
            PEAKED,
            (
                Control(f"{SATURATED}, d_k 64", PEAKED, True, "A softmax of large scores is a maximum."),
                Control("d_k 64, divided", PEAKED, False, "Scores of variance 1 leave every key its share."),
            ),
        ),
        Claim(
            "vanishes",
            "Without the division gradients vanish in the softmax.",
            "L1 and L3, claim 18",
            tuple(f"the gradient at d_k {width}" for width in WIDTHS),
            VANISHES,
            (
                Control(f"the gradient of {SATURATED}", VANISHES, True, "A maximum has no gradient."),
                Control(f"the gradient by {AGAIN}", VANISHES, False, "It is the same gradient."),
            ),
        ),
        Claim(
            "habit",
            "A model with the division trains better.",
            "the habit that L1 and L3 teach, claim 18",
            tuple(f"trained, d_k {width}" for width in (64, 256)),
            WORSE,
            (
                Control(f"trained, {SATURATED}", WORSE, True, "Such weights are a maximum, which hardly learns."),
                Control("trained, the division written out", WORSE, False, "It is the same model."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 300 if scale == "cpu" else 3000
        fit = (
            *("--config=lm/attention", "--data.batch_size=16", "--model.warmup_steps=30"),
            *("--model.model.num_layers=2", "--model.model.mixer.num_heads=1"),
            *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps // 2}"),
        )

        def arm(how: str, width: int, scale: float | None) -> Arm:
            own = () if scale is None else (f"--model.model.mixer.scale={scale:g}",)
            rates = (1e-3, 3e-3, 1e-2) if width == 64 else (5e-4, 1.5e-3, 5e-3)
            return Arm(trained(how, width), (*fit, f"--model.model.d_model={width}", *own), rates)

        return (
            *(arm(WITH, width, None) for width in (64, 256)),
            *(arm(WITHOUT, width, 1.0) for width in (64, 256)),
            arm(SATURATED, 64, 100 / 8),
            arm("the division written out", 64, 1 / 8),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        draw = torch.Generator().manual_seed(seed)
        seen = {(width, times): mean_of(width, times, draw) for width in WIDTHS for times in (None, 1.0)}
        hot, again = mean_of(64, 100 / 8, draw), mean_of(64, None, draw)
        values = {f"d_k {width}": seen[width, 1.0].largest for width in WIDTHS}
        values |= {f"{SATURATED}, d_k 64": hot.largest, "d_k 64, divided": seen[64, None].largest}
        for width in WIDTHS:
            values[f"the gradient at d_k {width}"] = math.log10(seen[width, 1.0].gradient / seen[width, None].gradient)
        values[f"the gradient of {SATURATED}"] = math.log10(hot.gradient / seen[64, None].gradient)
        values[f"the gradient by {AGAIN}"] = math.log10(again.gradient / seen[64, None].gradient)
        points: Points = [
            {"claim": "init", "d_k": width, "form": WITH if times is None else WITHOUT, **one._asdict()}
            for (width, times), one in seen.items()
        ]
        if not runs:
            return Measured(values, points, {"habit": "no model is trained at smoke scale"})
        loss = {name: score(run, "val/loss") for name, run in runs.items()}
        for width in (64, 256):
            values[f"trained, d_k {width}"] = loss[trained(WITHOUT, width)] - loss[trained(WITH, width)]
        for how in (SATURATED, "the division written out"):
            values[f"trained, {how}"] = loss[trained(how, 64)] - loss[trained(WITH, 64)]
        for name, run in runs.items():
            history = run.history("val/loss")
            points += [{"claim": "habit", "form": name, "step": step, "loss": value} for step, value in history]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        if claim.key == "habit":
            fits = [row for row in points if row["claim"] == "habit"]
            last = max((row["step"] for row in fits), default=0)
            rows = [row | {"how": row["form"].partition(", ")[2]} for row in fits if row["step"] == last]
            dots = alt.Chart(alt.InlineData(values=rows)).encode(
                alt.X("loss:Q", title="validation loss, nats (less is better)", scale=alt.Scale(zero=False)),
                alt.Y("form:N", title=None),
                alt.Color("how:N", legend=None),
                alt.Shape("how:N", legend=None),
                tooltip=["form:N", "seed:O", "loss:Q"],
            )
            return styled(dots.mark_point(filled=True, size=70).properties(width=200, height=alt.Step(24)))
        quantity, title = {
            "peaked": ("largest", "largest of a query's weights"),
            "vanishes": ("gradient", "gradient of a query"),
        }[claim.key]
        rows, forms = [row for row in points if row["claim"] == "init"], [WITH, WITHOUT]
        scale = alt.Scale(type="log") if claim.key == "vanishes" else alt.Scale(domain=[0, 1])
        widths, numbers = alt.Axis(format=",d", values=WIDTHS), alt.Axis(format="~g", tickCount=2)
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("d_k:Q", title="d_k, channels of a head", scale=alt.Scale(type="log", base=2), axis=widths),
            alt.Y(f"mean({quantity}):Q", title=title, scale=scale, axis=numbers),
            *(
                told("form:N", title=None, scale=alt.Scale(domain=forms))
                for told in (alt.Color, alt.Shape, alt.StrokeDash)
            ),
        )
        lines = (base.mark_line() + base.mark_point(filled=True, size=60)).properties(width=220, height=200)
        value, of = alt.X(f"{quantity}:Q", title=title, axis=numbers), alt.Y("form:N", title=None, sort=forms)
        return styled(with_slider(lines, rows, "d_k", value, of, "d_k"))


class Attended(NamedTuple):
    """Medians over queries.

    Attributes:
        largest: the largest weight.
        entropy: of the weights, in nats.
        gradient: norm of the query's gradient.
        key_gradient: norm of the key's gradient, over keys.
    """

    largest: float
    entropy: float
    gradient: float
    key_gradient: float


def mean_of(width: int, scale: float | None, draw: torch.Generator) -> Attended:
    """Means of `attend` over draws, the more the narrower the head, at one cost."""
    draws = (attend(width, scale, draw) for _ in range(WIDTHS[-1] // width))
    return Attended(*map(fmean, zip(*draws, strict=True)))


def attend(width: int, scale: float | None, draw: torch.Generator) -> Attended:
    """Medians for one head with that d_k; scale None = 1 / sqrt(d_k)."""
    attention = Attention(width, num_heads=1, pattern=Bidirectional, scale=scale, bias=False).double()
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
            projection.weight.copy_(_normal(width, width, draw=draw) / math.sqrt(width))
    x = _normal(BATCH, LENGTH, width, draw=draw)
    found: dict[str, Tensor] = {}

    def keep(name: str) -> None:
        def hook(_: object, __: object, out: Tensor) -> None:
            out.retain_grad()
            found[name] = out

        getattr(attention, name).register_forward_hook(hook)

    for name in ("q_proj", "k_proj"):
        keep(name)
    out, _ = attention(x)
    (out * _normal(*out.shape, draw=draw)).sum().backward()
    norms = {name: _grad(one).norm(dim=-1).median() for name, one in found.items()}
    weights = attention.attention_weights(x).detach()
    entropy = -(weights * weights.clamp_min(1e-300).log()).sum(-1)
    medians = (weights.amax(-1).median(), entropy.median(), norms["q_proj"], norms["k_proj"])
    return Attended(*(float(one) for one in medians))


def _grad(of: Tensor) -> Tensor:
    assert of.grad is not None
    return of.grad


def _normal(*shape: int, draw: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draw, dtype=torch.float64)
