"""Parity of strings that are longer than any in training: a state against attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab.study.arms import Arm
from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

TRAINED, EXAMPLES = 16, 400
LENGTHS = tuple(range(4, 49, 4))
SHORT, LONG = LENGTHS[:4], LENGTHS[4:]
RECURRENCES = ("RNN", "GRU", "LSTM")
ENCODINGS = ("NoPositions", "Sinusoidal", "RoPE", "ALiBi")
WITHIN, BEYOND = f"to {TRAINED}", f"beyond {TRAINED}"
RIGHT = "share of strings whose parity is right, 0.5 = guessed,"
SHARE = (0.0, 1.0)
FOLLOWS, GUESSES = Rule(RIGHT, low=0.99, beyond=0.09, possible=SHARE), Rule(RIGHT, high=0.6, beyond=0.3, possible=SHARE)
COUNTED, LAST = "the ones counted", "the last bit"
BOTH = (Control(COUNTED, FOLLOWS, True, "That is the answer."), Control(LAST, FOLLOWS, False, "It is right by chance."))


class StateTracking(Study):
    name = "state-tracking"
    question = "Can a model follow a state over a string that is longer than any it was trained on?"
    matched = (
        f"Strings of 1 to {TRAINED} bits, 96,000 of them at cpu scale, 64 channels, two learning rates each; tested "
        f"on {EXAMPLES} new strings of each length to {LENGTHS[-1]}. A recurrence has one layer and attention two, "
        "for one layer of attention sees bits and not what another made of them; so attention has twice the "
        "parameters or more."
    )
    why = (
        "A recurrence has to learn one step, flip or stay, and then every string is that step again and again. The "
        "RNN learned it and never errs; gates can learn something else that fits short strings. Of 48 bits the GRU "
        "gets 0.56, 1.00 and 0.76 right with its 3 seeds, so that it learned the step with one of them, and the LSTM "
        "guesses, though it is right to 12. Attention has no state to flip: it must weigh all bits at once, and what "
        "it learned of places or counts ends where training did."
    )
    change = "Training on far longer strings, writing the parity of each prefix down, or a loop over layers."
    published = (
        "The repository of xLSTM (Beck et al. 2024) trains two blocks of 64 channels on strings of 3 to 40 bits for "
        "20,000 steps and tests to 256: sLSTM, whose gates read the state, follows the parity, mLSTM does not. Ours "
        "are one layer, strings to 16 and 1,500 steps."
    )
    claims = (
        Claim(
            "follows",
            "A recurrence follows a state over strings of any length.",
            "Deletang et al. 2023, table 1; L4 has it of order",
            tuple(f"{name}, {BEYOND}" for name in RECURRENCES),
            FOLLOWS,
            BOTH,
        ),
        Claim(
            "guesses",
            "Attention does not follow a state over strings of any length, under any encoding.",
            "Deletang et al. 2023, table 1; Hahn 2020",
            tuple(f"{name}, {BEYOND}" for name in ENCODINGS),
            GUESSES,
            (
                Control(LAST, GUESSES, True, "It is right by chance."),
                Control(COUNTED, GUESSES, False, "That is the answer."),
            ),
        ),
        Claim(
            "within",
            "Of strings as long as those in training, attention finds the parity too.",
            "Chiang and Cholak 2022",
            tuple(f"{name}, {WITHIN}" for name in ENCODINGS),
            FOLLOWS,
            BOTH,
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 1500 if scale == "cpu" else 15_000
        fit = (
            *("--config=synthetic/parity", "--trainer.max_epochs=1", f"--trainer.val_check_interval={steps // 3}"),
            *(f"--data.train_lengths=[1,{TRAINED}]", f"--data.test_lengths=[{TRAINED + 1},{LENGTHS[-1]}]"),
            *("--data.batch_size=64", f"--data.num_train={64 * steps}", "--data.num_eval=512"),
        )
        attention = ("--model.model.mixer=Attention", "--model.model.num_layers=2")
        return (
            *(Arm(name, (*fit, f"--model.model.mixer={name}"), (1e-3, 3e-3)) for name in RECURRENCES),
            *(Arm(name, (*fit, *attention, f"--model.model.positions={name}"), (1e-3, 2e-3)) for name in ENCODINGS),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        from seqlab.trained.load import load_run

        answers: dict[str, Callable[[Tensor], Tensor]] = {COUNTED: counted, LAST: lambda tokens: tokens[:, -2] == ONE}
        answers |= {name: says_odd(load_run(run.id).model) for name, run in runs.items()}
        shares = {name: {length: share(answer, length, seed) for length in LENGTHS} for name, answer in answers.items()}
        points = [{"model": name, "length": at, "right": to} for name, of in shares.items() for at, to in of.items()]
        values = {name: mean(shares[name], LENGTHS) for name in (COUNTED, LAST)}
        for name in (*RECURRENCES, *ENCODINGS):
            of = shares.get(name, {})
            values |= {f"{name}, {WITHIN}": mean(of, SHORT), f"{name}, {BEYOND}": mean(of, LONG)}
        if not runs:
            return Measured(values, points, {claim.key: "no model is trained at smoke scale" for claim in self.claims})
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        names = RECURRENCES if claim.key == "follows" else ENCODINGS
        scale = alt.Scale(domain=names)
        shown = [row for row in points if row["model"] in names]
        base = alt.Chart(alt.InlineData(values=shown)).encode(
            alt.X("length:Q", title="bits"),
            alt.Y("mean(right):Q", title="share that is right", scale=alt.Scale(domain=[0.3, 1])),
            alt.Color("model:N", title=None, scale=scale),
            alt.Shape("model:N", title=None, scale=scale),
            tooltip=["model:N", "length:Q", "mean(right):Q"],
        )
        last = edge("x", TRAINED, "longest in training")
        lines = base.mark_line() + base.mark_point(filled=True, size=45) + last
        value, of = alt.X("right:Q", title="share that is right"), alt.Y("model:N", title=None, sort=list(names))
        return styled(with_slider(lines.properties(width=220, height=220), shown, "length", value, of, "bits"))


ZERO, ONE = 3, 4
"""The tokens of the bits; a string stands between a beginning and an end."""


def counted(tokens: Tensor) -> Tensor:
    """(B,): True where the number of ones in tokens (B, T) is odd."""
    return (tokens == ONE).sum(1) % 2 == 1


def says_odd(model: Any) -> Callable[[Tensor], Tensor]:
    """A function of tokens (B, T) that is True where the model says odd."""

    def said(tokens: Tensor) -> Tensor:
        logits = model(tokens)[0][:, -1]
        odd: Tensor = logits[:, ONE] > logits[:, ZERO]
        return odd

    return said


@torch.inference_mode()
def share(answer: Callable[[Tensor], Tensor], length: int, seed: int) -> float:
    """Share of new strings of a length whose parity the answer gets right."""
    from seqlab_data.generated import Draw
    from seqlab_data.synthetic import Parity as Task

    found = [Task().example(Draw(seed, length, place), length) for place in range(EXAMPLES)]
    tokens = torch.tensor([example.tokens for example in found])
    odd = torch.tensor([example.targets[-1] == ONE for example in found])
    return float((answer(tokens) == odd).double().mean())


def mean(shares: Mapping[int, float], lengths: Sequence[int]) -> float:
    """Mean over these lengths; NaN without shares."""
    return sum(shares[length] for length in lengths) / len(lengths) if shares else float("nan")
