"""Associative recall against the size of the state that must hold what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab.study.arms import Arm
from seqlab.study.charts import styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

SYMBOLS, PAIRS, EXAMPLES, WIDTH = 16, 6, 400, 64
ATTENTION, VECTOR = "attention", "GRU, a vector"
MATRIX, PARTS = "mLSTM, one matrix", "mLSTM, sixteen small ones"
MIXERS = {
    ATTENTION: "{class_path: Attention}",
    VECTOR: "{class_path: GRU}",
    MATRIX: "{class_path: MLSTM, init_args: {num_heads: 1}}",
    PARTS: "{class_path: MLSTM, init_args: {num_heads: 16}}",
}
RIGHT = f"share of values that are right of {PAIRS} pairs, 1 in {SYMBOLS} = guessed,"
SHARE = (0.0, 1.0)
RECALLS, FORGETS = Rule(RIGHT, low=0.99, beyond=0.09, possible=SHARE), Rule(RIGHT, high=0.6, beyond=0.3, possible=SHARE)
MORE = Rule("share of values that are right with the larger state, minus that with the smaller,", low=0.05, beyond=0.03)
OTHER, AGAIN, LARGEST = "attention, another's keys", "attention, fitted again", "attention over the vector"
LEARNT = Control(ATTENTION, RECALLS, True, "It has learned the task, or nothing is shown.")
READS = Control(OTHER, RECALLS, False, "What it was not told it cannot know.")


class Recall(Study):
    name = "recall"
    question = "Can a state of fixed size recall what it has read?"
    matched = (
        f"Up to {PAIRS} pairs of {SYMBOLS} keys and {SYMBOLS} values are read, then each key is asked for. A "
        f"convolution of four places, so that a pair can be seen, and then the block that is named; {WIDTH} channels, "
        "at cpu scale 1,400 steps of 64 strings, two learning rates each. Matched are width and steps; the models "
        "have 106,000 to 115,000 parameters. The state is that of the second block, in numbers: 4,161 in one matrix "
        "and its normaliser, 336 in sixteen, 64 in a vector, 3,200 of attention once all is read. After 1,000 steps "
        "attention had not learned the task with each seed, which made all invalid."
    )
    why = (
        "Attention keeps every key and value and looks up; its state grows with what it reads. A recurrence has to "
        "write each pair into a state that does not grow: a matrix of products of keys and values can be asked by a "
        "key, a vector has to be taught how, and many small matrices have less room than one large. Six pairs are 24 "
        "bits, which each of these states could hold: what fails is learning to write and to ask."
    )
    published = (
        "Arora et al. 2023 (Zoology, figure of MQAR: 8,192 symbols, two layers, the best of four learning rates): "
        "attention recalls all, at every width; H3, RWKV, gated convolutions and Hyena of 64 channels recall .93, "
        ".76, .70 and .52 of 4 pairs, and .01 to .02 of 64. Ours: other recurrences, six pairs of 16 symbols, two "
        "learning rates."
    )
    change = "More steps, fewer pairs, or a wider state: what a vector cannot learn in this time it may in more."
    claims = (
        Claim(
            "matrix",
            "A recurrence with a matrix for a state recalls as attention does.",
            "Arora et al. 2023, section 3, has it of attention alone; Beck et al. 2024 of the mLSTM",
            (MATRIX,),
            RECALLS,
            (LEARNT, READS),
        ),
        Claim(
            "vector",
            "A recurrence with a vector for a state does not recall as attention does.",
            "L2 and L4, claims 7 and 10; Arora et al. 2023, section 3",
            (VECTOR,),
            FORGETS,
            (
                LEARNT,
                READS,
                Control(OTHER, FORGETS, True, "What it was not told it cannot know."),
                Control(ATTENTION, FORGETS, False, "It keeps every pair."),
            ),
        ),
        Claim(
            "more",
            "More state recalls more.",
            "Arora et al. 2024, 'Based', figure 2",
            ("one matrix over sixteen small ones",),
            MORE,
            (
                LEARNT,
                Control(LARGEST, MORE, True, "It keeps every pair, and the vector has 64 numbers."),
                Control(AGAIN, MORE, False, "It is the same model."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 1400 if scale == "cpu" else 10_000
        fit = (
            *("--config=synthetic/recall", f"--data.task.num_keys={SYMBOLS}", f"--data.task.num_values={SYMBOLS}"),
            *(f"--data.train_lengths=[1,{PAIRS}]", f"--data.test_lengths=[{PAIRS},{PAIRS}]", "--data.num_eval=512"),
            *("--data.batch_size=64", f"--data.num_train={64 * steps}", f"--trainer.val_check_interval={steps // 2}"),
            f"--model.model.d_model={WIDTH}",
        )
        return [
            Arm(name, (*fit, f"--model.model.mixer=[{{class_path: CausalConv}}, {mixer}]"), (5e-4, 1e-3))
            for name, mixer in (MIXERS | {AGAIN: MIXERS[ATTENTION]}).items()
        ]

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        from seqlab.trained.load import load_run

        if not runs:
            return Measured({}, [], {claim.key: "no model is trained at smoke scale" for claim in self.claims})
        models = {name: load_run(run.id).model for name, run in runs.items()}
        shares = {name: [share(model, pairs, seed) for pairs in range(1, PAIRS + 1)] for name, model in models.items()}
        values = {name: of[-1] for name, of in shares.items()}
        values |= {
            OTHER: share(models[ATTENTION], PAIRS, seed, of_another=True),
            "one matrix over sixteen small ones": values[MATRIX] - values[PARTS],
            LARGEST: values[ATTENTION] - values[VECTOR],
            AGAIN: values[AGAIN] - values[ATTENTION],
        }
        points = [
            {"model": name, "pairs": pairs, "right": right, "state": state_size(models[name])}
            for name, of in shares.items()
            if name != AGAIN
            for pairs, right in enumerate(of, start=1)
        ]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        scale = alt.Scale(domain=list(MIXERS))
        told = [channel("model:N", title=None, scale=scale) for channel in (alt.Color, alt.Shape)]
        right = alt.Y("mean(right):Q", title="share that is right", scale=alt.Scale(domain=[0, 1]))
        tips = ["model:N", "pairs:Q", "state:Q", "mean(right):Q"]
        if claim.key == "more":
            last = [row for row in points if row["pairs"] == PAIRS]
            ticks = alt.Axis(format=",d", values=[10, 100, 1000, 10_000])
            size = alt.X("state:Q", title="numbers in the state", scale=alt.Scale(type="log"), axis=ticks)
            dots = alt.Chart(alt.InlineData(values=last)).encode(size, right, *told, tooltip=tips)
            return styled(dots.mark_point(filled=True, size=90).properties(width=220, height=200))
        base = alt.Chart(alt.InlineData(values=points)).encode(
            alt.X("pairs:Q", title="pairs", axis=alt.Axis(tickMinStep=1)), right, *told, tooltip=tips
        )
        lines = (base.mark_line() + base.mark_point(filled=True, size=45)).properties(width=220, height=200)
        value, of = alt.X("right:Q", title="share that is right"), alt.Y("model:N", title=None, sort=list(MIXERS))
        return styled(with_slider(lines, points, "pairs", value, of, "pairs"))


@torch.inference_mode()
def share(model: Any, pairs: int, seed: int, *, of_another: bool = False) -> float:
    """Share of the values asked for, in new strings of so many pairs, that are the likeliest; or, to see that the model
    reads, the share where the pairs are another string's."""
    from seqlab.batch import IGNORE
    from seqlab_data.generated import Draw
    from seqlab_data.synthetic import AssociativeRecall

    task = AssociativeRecall(SYMBOLS, SYMBOLS)
    found = [task.example(Draw(seed, pairs, place), pairs) for place in range(EXAMPLES)]
    tokens, targets = (torch.tensor([example[part] for example in found]) for part in (0, 1))  # (B, T)
    if of_another:
        tokens[:, : 2 * pairs + 1] = tokens[:, : 2 * pairs + 1].roll(1, 0)
    best: Tensor = model(tokens)[0].argmax(-1)
    asked = targets != IGNORE
    return float((best == targets)[asked].double().mean())


def state_size(model: Any) -> int:
    """Numbers in the second block's state after a string of PAIRS pairs."""
    from seqlab.mixer import size_of

    return size_of(model.stack.blocks[1].mixer.state_spec(), 4 * PAIRS + 1)
