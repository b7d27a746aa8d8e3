"""Reach of a recurrence back in time: gradients, and the adding problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab.attention import Attention
from seqlab.probes.gates import activations
from seqlab.probes.through_time import gradients_back
from seqlab.recurrence import GRU, LSTM, RNN, S4D
from seqlab.study.arms import Arm
from seqlab.study.charts import edge, styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab.trained.load import load_run
from seqlab_studies.lib.gradients import (
    BACK,
    BATCH,
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
from seqlab_studies.lib.gradients import BIASES as SATURATED
from seqlab_studies.lib.recurrences import AFTER, BEFORE, first_weights, gates_drawn, given, kept, through

if TYPE_CHECKING:
    from altair import TopLevelMixin

BIASES = (-1.0, 0.0, 1.0, 5.0)
IRNN, HALVES = "RNN of ReLU from the identity", "h = h / 2 + x"
GATED = ("LSTM", "GRU")
MIXERS: dict[str, Callable[[int], Any]] = {
    "RNN": RNN,
    "LSTM": LSTM,
    "GRU": GRU,
    **{f"LSTM, forget bias {bias:g}": partial(LSTM, forget_bias=bias) for bias in BIASES},
    IRNN: partial(RNN, nonlinearity="relu", identity_init=True),
    "S4D": S4D,
    "attention": partial(Attention, num_heads=1),
}
RATIO = f"log10 of the gradient of an output by the input {BACK} steps before, over that by its own input,"
GONE, THERE = Rule(RATIO, high=-7, beyond=5), Rule(RATIO, low=-2, beyond=5)
"""Ratios that count as gone, beyond a float32's seven digits, and as there, from a hundredth on."""
ERROR = "mean squared error of the sum of two marked numbers, 0.167 where 1 is always said,"
LEARNT = Rule(ERROR, high=0.01, beyond=0.04, possible=(0, math.inf))
FORGOTTEN = Rule(ERROR, low=0.1, beyond=0.05, possible=(0, math.inf))
SPANS = (50, 100)
FIRST = "log10 of the gradient of the last output by the first input, over that by its own input,"
KEPT = Rule(FIRST, low=-2, beyond=5)
HELD = Rule(
    "log10 of the product of the forget gates (a GRU's update gates) after the first step, in the unit keeping most,",
    low=-2,
    beyond=5,
)
GATES, SLOPES = "gates", "saturated slopes 1"
LONGEST = f"LSTM over {SPANS[-1]} steps"
OPEN = f"LSTM, forget bias {BIASES[-1]:g}, {GATES}"
ONE, EXACT = "1 is always said", "the marked numbers are added"


class Memory(Study):
    name = "memory"
    question = "How far back can a recurrence learn?"
    matched = (
        f"At initialisation: one layer of {WIDTH} channels over random vectors, in float64, the norm of the gradient "
        f"of a random sum of the last output. Trained: the adding problem, one layer of {WIDTH} channels without "
        "norms, residuals or feed-forward, 600 steps of 32 sequences at cpu scale, two learning rates. The width is "
        "matched and not the parameters: an LSTM has four times those of an RNN, a GRU three times. Before and after "
        "training: the first 256 sequences of the test split, in float64, by the weights that the fit began with and "
        "by those of its best validation. Saturated is a tanh beyond 0.9, and a gate below 0.1 or above 0.9; "
        "slopes are put to 1 in the backward pass alone. What gates hold has a number only if a trained model has "
        "learned the task, and keeps a gradient to be explained: a rule made after the first verdicts."
    )
    why = (
        "A gradient through k steps is a product of k factors. A tanh network's are below one at the usual "
        "initialisation, by its recurrent matrix more than by its slopes, and training left them so. Those of gates "
        "that begin half open are too: an LSTM or a GRU forgets as fast as its gates say, until it has learned to "
        "hold them open, which a task that pays for it teaches, the sooner the shorter its span. Each model that "
        "learned the task keeps the gradient from the first input on, and none that did not: over 100 steps the LSTM "
        "learned with 1 seed of 3. Attention has one factor at any distance."
    )
    change = "A longer sequence, fewer steps of training, or an initialisation that keeps the factors at 1."
    published = (
        "Bai et al. 2018 (table 1) give a mean squared error of 0.164 for an LSTM, 5.3e-5 for a GRU and 0.177 for an "
        "RNN on the adding problem over 600 steps, of 70,000 parameters each. Ours are shorter; the GRU learns it and "
        "the RNN does not in both."
    )
    claims = (
        Claim(
            "vanishes",
            "In an RNN the gradient through many steps vanishes.",
            "L1, L2 and L4, claim 7",
            ("RNN",),
            GONE,
            (
                Control(HALVES, GONE, True, "Each step halves it: 2 to the power of -100."),
                Control(IRNN, GONE, False, "It begins with factors of 1 or 0 on the diagonal (Le et al. 2015)."),
            ),
        ),
        Claim(
            "gates",
            "The gates of LSTM and GRU keep the gradient from vanishing, at initialisation.",
            "L2 and L4, claim 8",
            (*GATED, *(f"LSTM, forget bias {bias:g}" for bias in BIASES)),
            THERE,
            (
                Control(IRNN, THERE, True, "It begins with factors of 1 or 0 on the diagonal (Le et al. 2015)."),
                Control(HALVES, THERE, False, "Each step halves it: 2 to the power of -100."),
            ),
        ),
        Claim(
            "distance",
            "In attention words at any distance are one step apart.",
            "L2, L3 and L4, claim 9",
            ("attention",),
            THERE,
            (
                Control(IRNN, THERE, True, "It begins with factors of 1 or 0 on the diagonal (Le et al. 2015)."),
                Control(HALVES, THERE, False, "Each step halves it: 2 to the power of -100."),
            ),
        ),
        Claim(
            "learns",
            "LSTM and GRU learn what depends on something long ago.",
            "L2 and L4, claim 8",
            tuple(f"{name} over {span} steps" for name in GATED for span in SPANS),
            LEARNT,
            (
                Control(EXACT, LEARNT, True, "That is the answer."),
                Control(ONE, LEARNT, False, "The best answer without memory."),
            ),
        ),
        Claim(
            "forgets",
            "An RNN does not learn what depends on something long ago.",
            "L1, L2 and L4, claim 7",
            tuple(f"RNN over {span} steps" for span in SPANS),
            FORGOTTEN,
            (
                Control(ONE, FORGOTTEN, True, "The best answer without memory."),
                Control(EXACT, FORGOTTEN, False, "That is the answer."),
            ),
        ),
        Claim(
            "taught",
            "Training teaches LSTM and GRU to keep the gradient.",
            "L2 and L4, claim 8",
            tuple(f"{name} over {span} steps, {AFTER}" for name in GATED for span in SPANS),
            KEPT,
            (
                Control(IRNN, THERE, True, "It begins with factors of 1 or 0 on the diagonal (Le et al. 2015)."),
                Control(f"{LONGEST}, {BEFORE}", KEPT, False, "What it began as: its gates are half open."),
            ),
        ),
        Claim(
            "held",
            "It is the forget gates that keep it: an LSTM's cell is a linear path.",
            "L2 and L4, claim 8",
            tuple(f"{name} over {span} steps, {GATES}" for name in GATED for span in SPANS),
            HELD,
            (
                Control(OPEN, HELD, True, "They are held open, at 0.993."),
                Control(f"{LONGEST}, {GATES}, {BEFORE}", HELD, False, "What it began as: its gates are half open."),
            ),
        ),
        Claim(
            "saturated",
            "What a trained RNN forgets by is saturation: without it, its gradient would not vanish.",
            "L1, L2 and L4, claim 7",
            tuple(f"RNN over {span} steps, {SLOPES}" for span in SPANS),
            KEPT,
            (
                Control(SAVED, KEPT, True, "An orthogonal matrix: nothing but its slopes makes it vanish."),
                Control(SATURATED, KEPT, False, "The same with the slopes that it has."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 600 if scale == "cpu" else 3000
        rates = {"RNN": (1e-3, 3e-3), "LSTM": (5e-3, 1e-2), "GRU": (2e-3, 5e-3)}
        return [
            Arm(
                f"{name} over {span} steps",
                (
                    *("--config=synthetic/adding", f"--model.model.encoder.mixer={name}", "--data.num_eval=1000"),
                    *(f"--data.{split}_lengths=[{span},{span}]" for split in ("train", "test")),
                    *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps // 3}"),
                ),
                of_name,
            )
            for span in SPANS
            for name, of_name in rates.items()
        ]

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            back = {name: gradients(mixer) for name, mixer in MIXERS.items()}
            values = controls()
        back[HALVES] = torch.tensor(0.5, dtype=torch.float64) ** torch.arange(LENGTH)
        values |= {name: logarithm(of[BACK]) for name, of in back.items()}
        points = [row for name, of in back.items() for row in rows_of(of[: BACK + 1], 5, model=name)]
        if not runs:
            missing = "no model is trained at smoke scale"
            fitted = ("learns", "forgets", "taught", "held", "saturated")
            return Measured(values, points, dict.fromkeys(fitted, missing))
        for name, run in runs.items():
            values[name], values[ONE], values[EXACT] = errors(run)
            points.append({"trained": name, "error": values[name]})
            loaded = load_run(run.id)
            for when, model in ((AFTER, loaded.model), (BEFORE, first_weights(loaded))):
                seen = through(model.double(), given(loaded))
                values[f"{name}, {when}"] = logarithm(seen.back[-1])
                told = {"arm": name, "when": when}
                points += rows_of(seen.back, 7, model=f"{name}, {when}", **told)
                points += [told | {"kind": kind, "share": share} for kind, share in seen.shares.items()]
                if seen.kept is not None:
                    explains = when == BEFORE or values[name] <= LEARNT.high
                    held = logarithm(seen.kept) if explains else math.nan
                    values[f"{name}, {GATES}" + (f", {BEFORE}" if when == BEFORE else "")] = held
                    points.append(told | {"kept": max(float(seen.kept), NOTHING)})
                if seen.lifted is not None and when == AFTER:
                    values[f"{name}, {SLOPES}"] = logarithm(seen.lifted[-1])
                    points += rows_of(seen.lifted, 7, model=f"{name}, {SLOPES}", arm=name, when=SLOPES)
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        if claim.key in ("learns", "forgets"):
            shown = [row for row in points if "trained" in row]
            base = alt.Chart(alt.InlineData(values=shown)).encode(
                alt.X(
                    "error:Q",
                    title="mean squared error (less is better)",
                    scale=alt.Scale(type="log", domain=[1e-5, 1]),
                    axis=alt.Axis(format="~e", tickCount=5),
                ),
                alt.Y("trained:N", title=None),
                *(told("kind:N", legend=None) for told in (alt.Color, alt.Shape)),
                tooltip=["trained:N", "seed:O", "error:Q"],
            )
            dots = base.transform_calculate(kind="split(datum.trained, ' ')[0]").mark_point(filled=True, size=70)
            return styled((dots + edge("x", 1 / 6, "1 is always said")).properties(width=180, height=alt.Step(22)))
        if claim.key == "held":
            return gates_drawn([row for row in points if "share" in row or "kept" in row])
        if claim.key in ("taught", "saturated"):
            those = GATED if claim.key == "taught" else ("RNN",)
            rows = [row for row in points if "back" in row and str(row.get("arm")).startswith(those)]
            names = list(dict.fromkeys(row["model"] for row in rows))
            when = alt.StrokeDash("when:N", title=None, sort=[AFTER, BEFORE, SLOPES])
            return with_gradients(rows, gradient_lines(rows, alt.Color("arm:N", title=None), when), names)
        names = [*dict.fromkeys([*claim.cases, *(control.case for control in claim.controls), "RNN", "attention"])]
        rows, scale = [row for row in points if row.get("model") in names], alt.Scale(domain=names)
        both = [channel("model:N", title=None, scale=scale) for channel in (alt.Color, alt.StrokeDash)]
        return with_gradients(rows, gradient_lines(rows, *both), names)


def rows_of(back: Tensor, every: int, **told: str) -> Points:
    """Rows of some of the gradients (T,), relative to that of their own input, with their labels."""
    return [told | {"back": at, "gradient": max(float(back[at]), NOTHING)} for at in range(0, len(back), every)]


def gradients(make: Callable[[int], Any]) -> Tensor:
    """(LENGTH,): `gradients_back` of a new mixer over random vectors."""
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    return gradients_back(x, make(WIDTH).double()(x)[0])


def controls() -> dict[str, float]:
    """Product of gates held open over BACK steps, and the gradient of an RNN whose tanhs are all saturated, as it is
    and with slopes of 1; all as log10."""
    x = torch.randn(BATCH, BACK, WIDTH, dtype=torch.float64, requires_grad=True)
    saturated = orthogonal(bias=8.0)
    with torch.no_grad():
        (held,) = activations(LSTM(WIDTH, forget_bias=BIASES[-1]).double(), x)
    return {
        OPEN: logarithm(kept(held)),
        SATURATED: logarithm(gradients_back(x, saturated(x)[0])[-1]),
        SAVED: logarithm(gradients_back(x, lifted(saturated, x))[-1]),
    }


@torch.inference_mode()
def errors(run: TrackedRun) -> tuple[float, float, float]:
    """Mean squared errors on the test split: of the run, of always saying 1, and of adding the marked numbers."""
    loaded = load_run(run.id)
    data: Any = loaded.datamodule
    data.setup("test")
    found = torch.cat(
        [
            torch.stack(
                (
                    loaded.model(batch.inputs, pad_mask=batch.pad_mask).squeeze(-1) - batch.targets,
                    1 - batch.targets,
                    batch.inputs.prod(-1).sum(1) - batch.targets,
                )
            )
            for batch in data.test_dataloader()
        ],
        dim=1,
    )  # (3, N)
    ours, one, exact = found.double().square().mean(1).tolist()
    return ours, one, exact
