"""Reversing beyond the trained length, with encodings added or concatenated, with biases, and by a recurrence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from seqlab.study.arms import Arm
from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.lengths import COPIED, EXAMPLES, LONGEST, OF_ANOTHER, ORACLE, TRAINED, of_all, reach

if TYPE_CHECKING:
    from altair import TopLevelMixin

SYMBOLS, WIDTH = 8, 64
ADDED, BIASES = ("Sinusoidal", "Learned"), ("ALiBi", "T5Bias")
ENCODINGS, RECURRENCE = (*ADDED, "RoPE"), "GRU"
CONCATENATED = {name: f"{name}, concatenated" for name in ADDED}
FAR = Rule(
    f"the longest string that is reversed whole at least every second time, over {TRAINED},", low=2.0, beyond=0.5
)
LEARNT = Rule(
    f"the least share of strings of one length, up to {TRAINED}, that is reversed whole",
    low=0.9,
    beyond=0.4,
    possible=(0, 1),
)
ALIKE = Rule("how much further one is than the other, over the trained length,", low=-0.25, high=0.25, beyond=0.25)
TWICE, AGAINST = f"{ADDED[0]}, fitted again", "the answer, against another question's"


def learnt(names: Sequence[str]) -> tuple[Control, ...]:
    """The controls of claims about these models: that they know the task at the trained lengths."""
    return (
        *(Control(f"{name} learnt", LEARNT, True, "It has learned the task, or nothing is shown.") for name in names),
        Control(f"{OF_ANOTHER} learnt", LEARNT, False, "It cannot know that answer."),
    )


REACHES = (
    Control(ORACLE, FAR, True, "It is the answer, at any length."),
    Control(OF_ANOTHER, FAR, False, "It cannot know that answer."),
)


class Longer(Study):
    name = "longer"
    question = "Who goes on beyond the trained lengths, and does it matter how a position is told?"
    matched = (
        f"Reversing 1 to {TRAINED} out of {SYMBOLS} symbols, two layers of {WIDTH} channels, 192,000 strings at cpu "
        f"scale, three learning rates each. {EXAMPLES} strings of every single length to {LONGEST} are tested, given "
        "the answer so far. Embeddings are scaled to the size of what is added to them; what is concatenated goes "
        "through a matrix, which adds 8,192 parameters. A pilot of one seed chose the steps and the rates. Addition "
        "is the study sums, dates are long-dates. Where the models with a position added and concatenated both end "
        "with the trained length, nothing can differ, and the seed has no number."
    )
    why = (
        "To reverse is to find the place that mirrors this one, and a model learns that for the places it has seen. "
        "An angle or a table row from beyond them leads nowhere, whether it is added or concatenated. A bias by the "
        "distance prefers what is near, which helps where the answer is near: ALiBi reverses 7.7 symbols, T5's biases "
        "end with the distances they were trained on. A recurrence has to hold all symbols in one vector of a fixed "
        "size, and was trained to hold six."
    )
    change = "Training with positions drawn from a longer range, far longer training, or a step-by-step answer."
    published = (
        "Kazemnejad et al. 2023 train decoders of 107M parameters to reverse up to 20 tokens. Of texts of 24 about "
        "0.95 come out whole without positions and with T5's biases and 0.61 with ALiBi; of 28 it is 0.8, 0.7 and "
        "none, of 36 none at all. Ours are a thousandth as large and trained to six symbols: with ALiBi a symbol or "
        "two more, too."
    )
    claims = (
        Claim(
            "any-length",
            "With positions the length of the text does not matter, in reversing either.",
            "L0, L1 and L3, claims 15 and 16",
            ENCODINGS,
            FAR,
            (*REACHES, *learnt(ENCODINGS)),
        ),
        Claim(
            "train-short",
            "Train short, test long: biases that grow with the distance go on where encodings end.",
            "Press et al. 2022, of ALiBi",
            BIASES,
            FAR,
            (*REACHES, *learnt(BIASES)),
        ),
        Claim(
            "recurrence",
            "A recurrence, which has no positions, reads any length.",
            "L2 and L4, claim 15",
            (RECURRENCE,),
            FAR,
            (*REACHES, *learnt((RECURRENCE,))),
        ),
        Claim(
            "combined",
            "Whether a position is added or concatenated does not matter.",
            "L0, L1 and L3, claim 16",
            tuple(f"{case}, added against concatenated" for case in ADDED),
            ALIKE,
            (
                Control(f"{TWICE}, against the first", ALIKE, True, "It is the same model."),
                Control(AGAINST, ALIKE, False, "The one is right at any length, the other at none."),
                *learnt((*CONCATENATED, *CONCATENATED.values())),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 3000 if scale == "cpu" else 10_000
        fit = (
            *("--config=synthetic/recall", "--data.task=Reverse", f"--data.task.num_symbols={SYMBOLS}"),
            *(f"--data.train_lengths=[1,{TRAINED}]", f"--data.test_lengths=[{TRAINED},{LONGEST}]"),
            *("--data.batch_size=64", f"--data.num_train={64 * steps}", "--data.num_eval=512"),
            *(f"--model.model.d_model={WIDTH}", f"--trainer.val_check_interval={steps // 2}"),
        )
        mixer, positions = "--model.model.mixer=", "--model.model.positions="
        models: dict[str, tuple[str, ...]] = {
            name: (f"{mixer}Attention", f"{positions}{name}") for name in (*ENCODINGS, *BIASES)
        }
        models |= {
            concatenated: (*models[name], f"{positions[:-1]}.combine=concatenate")
            for name, concatenated in CONCATENATED.items()
        }
        models |= {RECURRENCE: (f"{mixer}GRU",), TWICE: models[ADDED[0]]}
        return [Arm(name, (*fit, *model), (1e-3, 3e-3, 6e-3)) for name, model in models.items()]

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            return Measured({}, [], dict.fromkeys((claim.key for claim in self.claims), "no model is trained at smoke"))
        shares, points = of_all(runs, seed, LONGEST, COPIED, OF_ANOTHER, ORACLE)
        return Measured(compared(shares), points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        named = {
            "any-length": ENCODINGS,
            "train-short": (*BIASES, "Sinusoidal"),
            "recurrence": (RECURRENCE, "RoPE"),
            "combined": (*ADDED, *CONCATENATED.values()),
        }[claim.key]
        rows = [row for row in points if row["model"] in named]
        scale = alt.Scale(domain=list(named))
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="symbols", axis=alt.Axis(tickMinStep=1)),
            alt.Y("mean(whole):Q", title="share reversed whole", scale=alt.Scale(domain=[0, 1])),
            alt.Color("model:N", title=None, scale=scale),
            alt.Shape("model:N", title=None, scale=scale),
            alt.StrokeDash("model:N", title=None, scale=scale),
            tooltip=["model:N", "length:Q", "mean(whole):Q"],
        )
        last = edge("x", TRAINED, "longest in training")
        lines = (base.mark_line() + base.mark_point(filled=True, size=45) + last).properties(width=220, height=220)
        value, of = alt.X("whole:Q", title="share reversed whole"), alt.Y("model:N", title=None, sort=list(named))
        return styled(with_slider(lines, rows, "length", value, of, "symbols"))


def compared(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Values of the cases, from the shares by length; NaN where both of two models end with the trained length."""
    values = {name: reach(share, TRAINED) for name, share in shares.items()}
    values |= {f"{name} learnt": min(share[:TRAINED]) for name, share in shares.items()}
    for name, concatenated in CONCATENATED.items():
        end_with_training = values[name] == values[concatenated] == 1
        further = math.nan if end_with_training else values[name] - values[concatenated]
        values[f"{name}, added against concatenated"] = further
    values[f"{TWICE}, against the first"] = values[TWICE] - values[ADDED[0]]
    values[AGAINST] = values[ORACLE] - values[OF_ANOTHER]
    return values
