"""Reversing and adding beyond the trained length, with encodings added or concatenated, biases and a recurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from seqlab.studies.arms import Arm
from seqlab.studies.charts import styled, with_slider
from seqlab.studies.length import OF_ANOTHER, ORACLE, TRAINED, by_length, reach
from seqlab.studies.rules import Claim, Control, Rule
from seqlab.studies.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

TASKS = {
    "reversing": ("--data.task=Reverse", "--data.task.num_symbols=8"),
    "adding": ("--data.task=Addition", "--data.task.lowest_first=true"),
}
WIDTH = 64
ADDED, BIASES = ("Sinusoidal", "Learned"), ("ALiBi", "T5Bias")
ENCODINGS, RECURRENCE = (*ADDED, "RoPE"), "GRU"
CONCATENATED = {name: f"{name}, concatenated" for name in ADDED}
FAR = Rule(f"the longest that comes out whole at least every second time, over {TRAINED},", low=2.0, beyond=0.5)
LEARNT = Rule(f"the least share of lengths 1 to {TRAINED} that comes out whole", low=0.9, beyond=0.4)
ALIKE = Rule("how much further one is than the other, over the trained length,", low=-0.25, high=0.25, beyond=0.25)
TWICE, AGAINST = "the same model twice", "the answer, against another question's"


def learnt(names: Sequence[str]) -> tuple[Control, ...]:
    """The controls of claims about these models: that they know the task at the trained lengths."""
    return (
        *(Control(f"{name} learnt", LEARNT, True, "It has learned the task, or nothing is shown.") for name in names),
        Control(f"{OF_ANOTHER} learnt", LEARNT, False, "It cannot know that answer."),
    )


def each(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}, {task}" for task in TASKS for name in names)


REACHES = (
    Control(ORACLE, FAR, True, "It is the answer, at any length."),
    Control(OF_ANOTHER, FAR, False, "It cannot know that answer."),
)


class Longer(Study):
    name = "longer"
    question = "Who goes on beyond the trained lengths, and does it matter how a position is told?"
    matched = (
        f"Reversing 1 to {TRAINED} out of 8 symbols, and adding two numbers of 1 to {TRAINED} digits, lowest first; "
        f"two layers of {WIDTH} channels, 128,000 examples at cpu scale, two learning rates each. 200 examples of "
        f"every single length to {2 * TRAINED} are tested, given the answer so far. Embeddings are scaled to the size "
        "of what is added to them; what is concatenated goes through a matrix, which adds 8,192 parameters."
    )
    why = ""
    change = "Training with positions drawn from a longer range, far longer training, or a step-by-step answer."
    claims = (
        Claim(
            "any-length",
            "With positions the length of the text does not matter, in reversing and adding either.",
            "L0, L1 and L3, claims 15 and 16",
            each(ENCODINGS),
            FAR,
            (*REACHES, *learnt(each(ENCODINGS))),
        ),
        Claim(
            "train-short",
            "Train short, test long: biases that grow with the distance go on where encodings end.",
            "Press et al. 2022, of ALiBi",
            each(BIASES),
            FAR,
            (*REACHES, *learnt(each(BIASES))),
        ),
        Claim(
            "recurrence",
            "A recurrence, which has no positions, reads any length.",
            "L2 and L4, claim 15",
            each((RECURRENCE,)),
            FAR,
            (*REACHES, *learnt(each((RECURRENCE,)))),
        ),
        Claim(
            "combined",
            "Whether a position is added or concatenated does not matter.",
            "L0, L1 and L3, claim 16",
            tuple(f"{case}, added against concatenated" for case in each(ADDED)),
            ALIKE,
            (
                Control(TWICE, ALIKE, True, "It is as far as itself."),
                Control(AGAINST, ALIKE, False, "The one is right at any length, the other at none."),
                *learnt((*each(ADDED), *each(tuple(CONCATENATED.values())))),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 2000 if scale == "cpu" else 10_000
        fit = (
            *("--config=synthetic/recall", f"--data.train_lengths=[1,{TRAINED}]", "--data.batch_size=64"),
            *(
                f"--data.test_lengths=[{TRAINED},{2 * TRAINED}]",
                f"--data.num_train={64 * steps}",
                "--data.num_eval=512",
            ),
            *(f"--model.model.d_model={WIDTH}", f"--trainer.val_check_interval={steps // 2}"),
        )
        mixer, positions = "--model.model.mixer=", "--model.model.positions="
        models = {name: (f"{mixer}Attention", f"{positions}{name}") for name in (*ENCODINGS, *BIASES)}
        models |= {
            CONCATENATED[name]: (*models[name], f"{positions[:-1]}.combine=concatenate") for name in CONCATENATED
        }
        models[RECURRENCE] = (f"{mixer}GRU",)
        return tuple(
            Arm(f"{name}, {task}", (*fit, *flags, *model), (3e-3, 1e-2) if name == RECURRENCE else (1e-3, 3e-3))
            for task, flags in TASKS.items()
            for name, model in models.items()
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            return Measured({}, [], dict.fromkeys((claim.key for claim in self.claims), "no model is trained at smoke"))
        shares = {name: by_length(run, seed) for name, run in runs.items()}
        shares[OF_ANOTHER] = by_length(runs[each(("RoPE",))[0]], seed, of_another=True)
        shares[ORACLE] = [1.0] * 2 * TRAINED
        points: Points = [
            {"model": name.split(f", {task}")[0], "task": task, "length": length, "whole": whole}
            for task in TASKS
            for name, share in shares.items()
            if name.endswith(task)
            for length, whole in enumerate(share, start=1)
        ]
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
            alt.X("length:Q", title="symbols or digits", axis=alt.Axis(tickMinStep=1)),
            alt.Y("mean(whole):Q", title="share right", scale=alt.Scale(domain=[0, 1])),
            alt.Color("model:N", title=None, scale=scale),
            alt.Shape("model:N", title=None, scale=scale),
            alt.StrokeDash("task:N", title=None, scale=alt.Scale(domain=list(TASKS))),
            tooltip=["model:N", "task:N", "length:Q", "mean(whole):Q"],
        )
        last = alt.Chart(alt.InlineData(values=[{"length": TRAINED}])).mark_rule(strokeDash=[4, 3]).encode(x="length:Q")
        lines = (base.mark_line() + base.mark_point(filled=True, size=45) + last).properties(width=220, height=220)
        value, of = alt.X("whole:Q", title="share right"), alt.Y("model:N", title=None, sort=list(named))
        return styled(with_slider(lines, rows, "length", value, of, "length"))


def compared(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """What the claims rest on, of the shares by length."""
    values = {name: reach(share) for name, share in shares.items()}
    values |= {f"{name} learnt": min(share[:TRAINED]) for name, share in shares.items()}
    for task in TASKS:
        for name, concatenated in CONCATENATED.items():
            apart = values[f"{name}, {task}"] - values[f"{concatenated}, {task}"]
            values[f"{name}, {task}, added against concatenated"] = apart
    first = each(ADDED)[0]
    values[TWICE] = values[first] - values[first]
    values[AGAINST] = values[ORACLE] - values[OF_ANOTHER]
    return values
