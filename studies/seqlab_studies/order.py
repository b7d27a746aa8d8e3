"""Sensitivity to word order: attention with and without positions, and recurrences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from seqlab.study.arms import Arm
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.order_effects import (
    AFTER,
    BAG,
    DEPTHS,
    ENCODINGS,
    LAST_FOUR,
    LENGTH,
    OLDER,
    RECURRENCES,
    REVERSED,
    UNPLACED,
    VOCAB,
    WIDTH,
    WINDOW,
    WINDOWS,
    effects,
    of_trained,
)

if TYPE_CHECKING:
    from altair import TopLevelMixin

NOTHING = 1e-20
"""Floor for logarithms: no effect at all counts as this."""
BLIND, SEES = 1e-12, 1e-3
QUANTITY = "log10 of what another order of the words changes, over what other words change,"
IS_BLIND = Rule(QUANTITY, high=math.log10(BLIND), beyond=math.log10(SEES / BLIND))
DOES_SEE = Rule(QUANTITY, low=math.log10(SEES), beyond=math.log10(SEES / BLIND))
FORGETS = Rule(
    "log10 of what other words before a window change, over what other words in it change,",
    high=IS_BLIND.high,
    beyond=IS_BLIND.beyond,
)
READS_BOTH = Rule(
    "log10 of what other words after a place change there, over what other words before it change,",
    low=DOES_SEE.low,
    beyond=DOES_SEE.beyond,
)
GRU = "GRU"
TRAINED, LOSS = ", trained", "GRU, its loss"
PLACED = {name: (name,) for name in ("Sinusoidal", "Learned", "CoPE")} | {"Integer, added": ("Integer", "add")}
"""Encodings of the trained encoders: their class, and how they are combined with the words."""
LEARNT = Rule("loss in nats a character", high=2.5)
"""Limit for a trained model: from frequencies alone, a character of CPython's documentation costs 3.2."""


class Order(Study):
    name = "order"
    question = "Is attention blind to the order of the words?"
    matched = (
        f"At initialisation, in float64: {WIDTH} channels, {LENGTH} random tokens of {VOCAB}. The last token stays and "
        "those before it change places; what that changes at the last output is divided by what other tokens in their "
        f"places change. Below {BLIND:g} is blind, above {SEES:g} sees. One layer where the depth is not said, but two "
        f"where positions are compared. Windows are of {WINDOW} words, the last included. Trained: the same measure "
        f"of models that were then fitted to CPython's documentation, a character at a time and {LENGTH} in a row, 200 "
        "steps at cpu scale, each at the better of two learning rates. Encoders find hidden characters, causal models "
        "the next one. That a GRU's loss is at most 2.5 was set after a pilot in which it was 1.94. The claims on "
        "windows, and integers that are added to words in training, were added after the first verdicts: among "
        "recurrences, CBOW had seemed to see the order, because a new order brought other words into its window."
    )
    why = (
        "An encoder without positions reads a bag of words: a sum over the words has no order, and attention is such "
        "a sum. A causal mask brings the order in: the second layer attends to outputs of the first, each of which "
        "has seen what came before it and nothing else. An integer that is added to every channel is a constant over "
        "the channels, and the norm before attention takes it away, trained or not. CoPE tells nothing before it is "
        "trained: its table begins at zero, and training fills it. Linear attention is a recurrence that adds up the "
        "past, and CBOW adds up its window: a sum has no order. Training changes weights, and a weighted sum is a sum "
        "still."
    )
    change = "Another norm: RMSNorm does not subtract the mean, so that added integers would be seen."
    claims = (
        Claim(
            "bag",
            "Attention alone is a bag of words: cat chased mouse is mouse chased cat.",
            "L0, L2 and L3, claim 14",
            tuple(f"{kind}, {depth} deep" for kind in ("encoder", "causal decoder") for depth in DEPTHS),
            IS_BLIND,
            (
                Control(BAG, IS_BLIND, True, "The mean of the embeddings has no order."),
                Control(GRU, IS_BLIND, False, "It reads one word after the other."),
            ),
        ),
        Claim(
            "invariant",
            "Attention alone is permutation invariant.",
            "L0, L2 and L3, claim 14",
            ("every output in its place", "the mean of the outputs"),
            IS_BLIND,
            (
                Control("outputs that move with their words", IS_BLIND, True, "That is what equivariant means."),
                Control("the mean of the outputs, with Sinusoidal", IS_BLIND, False, "Positions tell."),
            ),
        ),
        Claim(
            "positions",
            "A positional encoding makes attention see the order.",
            "L0, L1 and L3, claims 14 and 16",
            tuple(ENCODINGS),
            DOES_SEE,
            (
                Control(GRU, DOES_SEE, True, "It reads one word after the other."),
                Control(UNPLACED, DOES_SEE, False, "It has nothing that could tell."),
            ),
        ),
        Claim(
            "recurrences",
            "A recurrence sees the order by itself.",
            "L2 and L4, claims 9 and 14",
            tuple(RECURRENCES),
            DOES_SEE,
            (
                Control("causal decoder, 2 deep", DOES_SEE, True, "Two causal layers see the order of the past."),
                Control(UNPLACED, DOES_SEE, False, "It has nothing that could tell."),
            ),
        ),
        Claim(
            "cbow",
            "CBOW forgets the order of the words in its window.",
            "L2, claim 24",
            (f"CBOW{REVERSED}",),
            IS_BLIND,
            (
                Control(BAG, IS_BLIND, True, "The mean of the embeddings has no order."),
                Control(f"NGramWindow{REVERSED}", IS_BLIND, False, "Each place of its window has weights of its own."),
            ),
        ),
        Claim(
            "window",
            "A window of N - 1 words forgets what is older.",
            "L2, claim 24",
            tuple(f"{name}{OLDER}" for name in WINDOWS),
            FORGETS,
            (
                Control(f"{LAST_FOUR}{OLDER}", FORGETS, True, "It is made of them alone."),
                Control(f"GRU{OLDER}", FORGETS, False, "Its state holds what it has read."),
            ),
        ),
        Claim(
            "both-ways",
            "One RNN reads one way; two read both.",
            "L2, claim 24",
            (f"two GRUs{AFTER}",),
            READS_BOTH,
            (
                Control(f"attention{AFTER}", READS_BOTH, True, "Without a mask it reads every place."),
                Control(f"GRU{AFTER}", READS_BOTH, False, "It has not read them yet."),
            ),
        ),
        Claim(
            "bag-trained",
            "Trained attention alone is a bag of words too.",
            "L0, L2 and L3, claim 14",
            tuple(f"{of} deep{TRAINED}" for of in ("encoder, 2", "causal decoder, 1", "causal decoder, 2")),
            IS_BLIND,
            (
                Control(BAG, IS_BLIND, True, "The mean of the embeddings has no order."),
                Control(f"{GRU}{TRAINED}", IS_BLIND, False, "It reads one word after the other."),
                Control(LOSS, LEARNT, True, "What has learnt nothing is not trained."),
            ),
        ),
        Claim(
            "positions-trained",
            "A trained model with a positional encoding sees the order.",
            "L0, L1 and L3, claims 14 and 16",
            tuple(f"{name}{TRAINED}" for name in PLACED),
            DOES_SEE,
            (
                Control(f"{GRU}{TRAINED}", DOES_SEE, True, "It reads one word after the other."),
                Control(f"encoder, 2 deep{TRAINED}", DOES_SEE, False, "It has nothing that could tell."),
                Control(LOSS, LEARNT, True, "What has learnt nothing is not trained."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 200 if scale == "cpu" else 5000
        fit = (
            *(f"--data.seq_len={LENGTH}", "--data.batch_size=64", "--model.warmup_steps=20"),
            *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps}"),
            "--trainer.limit_val_batches=20",
        )

        def arm(case: str, config: str, *options: str) -> Arm:
            chosen = (f"--model.model.{option}" for option in options)
            return Arm(f"{case}{TRAINED}", (f"--config={config}", *chosen, *fit), (1e-3, 3e-3))

        wide = f"d_model={WIDTH}"
        encoders = {"encoder, 2 deep": ("NoPositions",)} | PLACED
        return [
            *(
                arm(
                    case,
                    *("mlm/transformer", f"encoder.{wide}", f"encoder.positions={name}"),
                    *(f"encoder.positions.combine={how}" for how in combined),
                )
                for case, (name, *combined) in encoders.items()
            ),
            *(arm(f"causal decoder, {n} deep", "lm/attention-nope", wide, f"num_layers={n}") for n in (1, 2)),
            arm(GRU, "lm/gru", wide, "num_layers=1"),
        ]

    @torch.no_grad()
    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            values = {case: math.log10(max(effect, NOTHING)) for case, effect in (*effects(), *of_trained(runs))}
        points: Points = [{"case": case, "value": value} for case, value in values.items()]
        if not runs:
            missing = "no model is trained at smoke scale"
            return Measured(values, points, {"bag-trained": missing, "positions-trained": missing})
        return Measured(values | {LOSS: runs[f"{GRU}{TRAINED}"].metrics["val/loss"]}, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        names = [*claim.cases, *(control.case for control in claim.controls if control.case != LOSS)]
        if claim.cases[0].endswith(TRAINED):  # beside what it was at initialisation
            names = [name.removesuffix(TRAINED) for name in names]
            parts = [(row, *row["case"].partition(TRAINED)[:2]) for row in points]
            shown = [row | {"case": name, "is": "trained" if end else "at initialisation"} for row, name, end in parts]
        else:
            shown = [row | {"is": "case" if row["case"] in claim.cases else "control"} for row in points]
        shown = [row | {"effect": 10 ** row["value"]} for row in shown if row["case"] in names]
        named = {f"blind, at most {BLIND:g}": BLIND, f"sees, at least {SEES:g}": SEES}
        edges = alt.Chart(alt.InlineData(values=[{"edge": edge, "named": name} for name, edge in named.items()]))
        causes = {"window": "words before the window", "both-ways": "words after a place"}
        effect = f"effect of {causes.get(claim.key, 'another order')}"
        powers = alt.Axis(format="~e", values=[NOTHING, 1e-15, 1e-10, 1e-5, 1])
        points_of = alt.Chart(alt.InlineData(values=shown)).encode(
            x=alt.X(
                "effect:Q",
                title=[effect, "1 = as much as other words, 10⁻²⁰ = nothing"],
                scale=alt.Scale(type="log", domain=[NOTHING / 3, 10]),
                axis=powers,
            ),
            y=alt.Y("case:N", title=None, sort=names, axis=alt.Axis(labelLimit=220)),
            shape=alt.Shape("is:N", title=None),
            color=alt.Color("is:N", title=None),
            tooltip=["case:N", "seed:O", "effect:Q"],
        )
        lines = edges.mark_rule(size=2).encode(x="edge:Q", strokeDash=alt.StrokeDash("named:N", title=None))
        layers = lines + points_of.mark_point(filled=True, size=70)
        return styled(layers.properties(width=190, height=alt.Step(20)))
