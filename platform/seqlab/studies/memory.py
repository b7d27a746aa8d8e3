"""How far back a recurrence learns: gradients through time, and the adding problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab.attention import Attention
from seqlab.recurrence import GRU, LSTM, RNN, S4D
from seqlab.studies.arms import Arm
from seqlab.studies.charts import styled
from seqlab.studies.rules import Claim, Control, Rule
from seqlab.studies.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

BATCH, LENGTH, WIDTH, BACK = 4, 128, 64, 100
NOTHING = 1e-40
"""What is no gradient counts as this."""
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
"""Beyond a float32's seven digits, and a hundredth."""
ERROR = "mean squared error of the sum of two marked numbers, 0.167 where 1 is always said,"
LEARNT, FORGOTTEN = Rule(ERROR, high=0.01, beyond=0.04), Rule(ERROR, low=0.1, beyond=0.05)
SPANS = (50, 100)
ONE, EXACT = "1 is always said", "the marked numbers are added"


class Memory(Study):
    name = "memory"
    question = "How far back can a recurrence learn?"
    matched = (
        f"At initialisation: one layer of {WIDTH} channels over random vectors, in float64, the norm of the gradient "
        f"of a random sum of the last output. Trained: the adding problem, one layer of {WIDTH} channels without "
        "norms, residuals or feed-forward, 600 steps of 32 sequences at cpu scale, two learning rates. The width is "
        "matched and not the parameters: an LSTM has four times those of an RNN, a GRU three times."
    )
    why = (
        "A gradient through k steps is a product of k factors. A tanh network's are below 1 at the usual "
        "initialisation, and so are those of gates that begin half open: an LSTM or a GRU forgets as fast as its "
        "gates say, until it has learned to hold them open, which a task that pays for it teaches, the sooner the "
        "shorter its span. Attention has one factor at any distance."
    )
    change = "A longer sequence, fewer steps of training, or an initialisation that keeps the factors at 1."
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
            "An RNN does not.",
            "L1, L2 and L4, claim 7",
            tuple(f"RNN over {span} steps" for span in SPANS),
            FORGOTTEN,
            (
                Control(ONE, FORGOTTEN, True, "The best answer without memory."),
                Control(EXACT, FORGOTTEN, False, "That is the answer."),
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
        back[HALVES] = torch.tensor(0.5, dtype=torch.float64) ** torch.arange(LENGTH)
        values = {name: math.log10(max(float(of[BACK] / of[0]), NOTHING)) for name, of in back.items()}
        points = [
            {"model": name, "back": at, "gradient": max(float(of[at] / of[0]), NOTHING)}
            for name, of in back.items()
            for at in range(0, BACK + 1, 5)
        ]
        if not runs:
            missing = "no model is trained at smoke scale"
            return Measured(values, points, dict.fromkeys(("learns", "forgets"), missing))
        for name, run in runs.items():
            values[name], values[ONE], values[EXACT] = errors(run)
            points.append({"trained": name, "error": values[name]})
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        if claim.key in ("learns", "forgets"):
            shown = [row for row in points if "trained" in row]
            base = alt.Chart(alt.InlineData(values=shown)).encode(
                alt.X("error:Q", title="mean squared error", scale=alt.Scale(type="log"), axis=alt.Axis(format="~g")),
                alt.Y("trained:N", title=None),
                tooltip=["trained:N", "seed:O", "error:Q"],
            )
            return styled(base.mark_point(filled=True, size=70).properties(width=180, height=alt.Step(20)))
        names = {*claim.cases, *(control.case for control in claim.controls), "RNN", "attention"}
        base = alt.Chart(alt.InlineData(values=[row for row in points if row.get("model") in names])).encode(
            alt.X("back:Q", title="steps back"),
            alt.Y(
                "mean(gradient):Q",
                title="gradient, that of its own input = 1",
                scale=alt.Scale(type="log", domain=[1e-30, 1e3], clamp=True),
                axis=alt.Axis(format="~e"),
            ),
            alt.Color("model:N", title=None),
            alt.StrokeDash("model:N", title=None),
        )
        return styled(base.mark_line().properties(width=220, height=240))


def gradients(make: Callable[[int], Any]) -> Tensor:
    """(LENGTH,): of the last output, by the input so many steps before it; norms of a new mixer."""
    x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    out, _ = make(WIDTH).double()(x)
    (found,) = torch.autograd.grad((out[:, -1] * torch.randn(BATCH, WIDTH, dtype=torch.float64)).sum(), x)
    norms: Tensor = found.norm(dim=(0, 2))
    return norms.flip(0)


@torch.inference_mode()
def errors(run: TrackedRun) -> tuple[float, float, float]:
    """Mean squared errors on the test split: the run's, of saying 1 always, and of adding the marked numbers."""
    from seqlab.trained.load import load_run

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
