"""Reading dates that are longer than any in training, by Transformers with each encoding and by recurrences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqlab.study.arms import Arm
from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab.tracking.store import DEFAULT_ROOT
from seqlab.trained.load import load_run
from seqlab_studies.lib.translations import translate

if TYPE_CHECKING:
    from altair import TopLevelMixin

TRAINED, SHORTEST, LONGEST = 24, 13, 30
"""Characters of a source, its locale's name too: the longest in training, the shortest and the longest tested."""
BEYOND = range(TRAINED + 1, LONGEST + 1)
DRAWN, EACH = 12_000, 60
"""Dates that the tested ones are taken from, and the most of each length."""
ENCODINGS = ("Sinusoidal", "Learned", "RoPE", "ALiBi", "T5Bias")
RECURRENCES = ("GRU with attention", "GRU, one vector")
ANY = "GRU with attention"
ALL, OF_ANOTHER = f"{ANY}, trained on every length", f"{ANY}, of another date"
KNOWN = 0.8
"""Smallest share of right dates of trained lengths. A model below it has not learned to read, and its seed is not
judged."""
KEEPS = Rule(
    f"share of dates of {BEYOND[0]} to {BEYOND[-1]} characters that come out right, over that of up to {TRAINED},",
    low=0.95,
    beyond=0.15,
)
LEARNT = Rule(
    f"share of dates of up to {TRAINED} characters that come out right", low=0.95, beyond=0.25, possible=(0, 1)
)
CONTROLS = (
    Control(ALL, KEEPS, True, "Where such lengths were in training, they can be read."),
    Control(OF_ANOTHER, KEEPS, False, "What does not read its source must not score."),
    Control(f"{ANY}, short", LEARNT, True, "It has learned to read dates."),
    Control(f"{OF_ANOTHER}, short", LEARNT, False, "What does not read its source must not score."),
)


class LongDates(Study):
    name = "long-dates"
    question = "Can a model read dates that are longer than any it was trained on?"
    matched = (
        f"Dates in 23 locales to ISO 8601, by the character, of up to {TRAINED} characters in training, 800 steps of "
        "2,048 at cpu scale, 64 channels, two learning rates each. Transformers have two layers on either side, the "
        f"GRUs one. Up to {EACH} dates of every length from {SHORTEST} to {LONGEST} are tested, no date of training "
        "among them, and beyond the trained length only such whose every word, but for digits, was in training: what "
        "is new is the length. A date as ISO 8601 has ten characters, however long its source is. A model of which not "
        f"{100 * KNOWN:g}% of the trained lengths come out right has not learned to read dates, and its seed has no "
        "number. Without positions an encoder reads a bag of characters, which tells no day from a month: after "
        "a first fit it was left out, and the rule was made one of shares over shares."
    )
    why = (
        "Sines and learned vectors belong to places. Beyond the trained ones come vectors that were never read: two "
        "characters beyond, 23% of the dates come out right with sines and 11% with learned vectors, though nothing "
        "but their length is new. RoPE and biases tell distances, and most of those of a longer date were in "
        "training; the more of them are new, the more dates fail. A recurrence has no places: a GRU that attends to "
        "what it has read goes on, for it looks for what it needs by what stands there."
    )
    change = "Training with positions drawn from a longer range, or far longer training."
    claims = (
        Claim(
            "any-length",
            "With positions the length of the text does not matter, in reading dates either.",
            "L0, L1 and L3, claims 15 and 16",
            ENCODINGS,
            KEEPS,
            CONTROLS,
        ),
        Claim(
            "recurrence",
            "A recurrence, which has no positions, reads any length.",
            "L2 and L4, claim 15",
            RECURRENCES,
            KEEPS,
            CONTROLS,
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke":
            return ()
        steps = 800 if scale == "cpu" else 8000
        fit = (
            *("--data.source_tokenizer=CharTokenizer", "--data.target_tokenizer=CharTokenizer"),
            *("--data.max_len=64", "--data.max_tokens=2048", "--model.warmup_steps=100", "--trainer.callbacks=null"),
            *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps}"),
        )
        short, every = (
            tuple(f"--data.{split}={written(split, longest)}" for split in ("train", "val"))
            for longest in (TRAINED, None)
        )
        wide, both = "--model.model.encoder.d_model=64", ("--model.model.positions", "--model.model.encoder.positions")
        return (
            *(
                Arm(
                    name,
                    ("--config=translate/transformer", *short, *fit, wide, *(f"{one}={name}" for one in both)),
                    (2e-3, 4e-3),
                )
                for name in ENCODINGS
            ),
            *(
                Arm(name, (f"--config={config}", *lines, *fit, width), (3e-3, 6e-3))
                for name, config, lines, width in (
                    (ANY, "translate/dates", short, wide),
                    ("GRU, one vector", "translate/rnn", short, "--model.model.d_model=64"),
                    (ALL, "translate/dates", every, wide),
                )
            ),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            return Measured({}, [], dict.fromkeys((claim.key for claim in self.claims), "no model is trained at smoke"))
        tested = dates_by_length(seed)
        sources = [source for of in tested.values() for source, _ in of]
        targets = [target for of in tested.values() for _, target in of]
        wrote = {name: translate(load_run(run.id), sources) for name, run in runs.items()}
        first = wrote[ANY]
        wrote[OF_ANOTHER] = [*first[EACH // 2 :], *first[: EACH // 2]]
        shares = {name: shares_of(texts, targets, tested) for name, texts in wrote.items()}
        points: Points = [
            {"model": name, "length": length, "right": share}
            for name, of in shares.items()
            for length, share in of.items()
        ]
        return Measured(compared(shares), points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        shown = [*ENCODINGS] if claim.key == "any-length" else [*RECURRENCES, ALL]
        rows = [row for row in points if row["model"] in shown]
        scale = alt.Scale(domain=shown)
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="characters", scale=alt.Scale(zero=False, nice=False)),
            alt.Y("mean(right):Q", title="share that comes out right", scale=alt.Scale(domain=[0, 1])),
            alt.Color("model:N", title=None, scale=scale),
            alt.Shape("model:N", title=None, scale=scale),
            alt.StrokeDash("model:N", title=None, scale=scale),
            tooltip=["model:N", "length:Q", "mean(right):Q"],
        )
        last = edge("x", TRAINED, "longest in training")
        lines = (base.mark_line() + base.mark_point(filled=True, size=45) + last).properties(width=220, height=220)
        value, of = alt.X("right:Q", title="share that comes out right"), alt.Y("model:N", title=None, sort=shown)
        return styled(with_slider(lines, rows, "length", value, of, "characters"))


Pairs = list[tuple[str, str]]


def pairs(split: str, count: int | None = None) -> Pairs:
    """Dates and their targets."""
    from seqlab_data.pairs import dates

    lines = (line.split("\t") for line in dates(split, count).lines())
    return [(source, target) for source, target in lines]


def written(split: str, longest: int | None) -> Path:
    """A file of the split's dates, up to a length if one is given."""
    path = Path(DEFAULT_ROOT) / "texts" / f"dates-{split}-{longest or 'all'}.tsv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [pair for pair in pairs(split) if longest is None or len(pair[0]) <= longest]
        path.write_text("".join(f"{source}\t{target}\n" for source, target in kept), encoding="utf-8")
    return path


def dates_by_length(seed: int) -> dict[int, Pairs]:
    """Test pairs by length, another part for each seed. Their words were in training or have digits."""
    words = {word for source, _ in pairs("train") if len(source) <= TRAINED for word in source.split()}
    known = [
        (source, target)
        for source, target in pairs("test", 3 * DRAWN)[seed % 3 :: 3]
        if all(word in words or any(letter.isdigit() for letter in word) for word in source.split())
    ]
    return {
        length: [pair for pair in known if len(pair[0]) == length][:EACH] for length in range(SHORTEST, LONGEST + 1)
    }


def shares_of(texts: Sequence[str], targets: Sequence[str], tested: Mapping[int, Pairs]) -> dict[int, float]:
    """Share of texts equal to their targets, by length; both are in the order of `tested`."""
    shares, begun = {}, 0
    for length, of in tested.items():
        span = range(begun, begun + len(of))
        shares[length] = sum(texts[at] == targets[at] for at in span) / len(of)
        begun += len(of)
    return shares


def compared(shares: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Values of the cases: the mean share beyond the trained lengths over that within them, and the latter; NaN for a
    model that has not learned to read."""

    def mean(of: Mapping[int, float], lengths: range) -> float:
        return sum(of[length] for length in lengths) / len(lengths)

    values: dict[str, float] = {}
    for name, of in shares.items():
        short, long = mean(of, range(SHORTEST, TRAINED + 1)), mean(of, BEYOND)
        values[f"{name}, short"] = short
        values[name] = long if name == OF_ANOTHER else long / short if short >= KNOWN else math.nan
    return values
