"""Time of reading and writing by the length of the text, in PyTorch and in the exported bundle."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch

from seqlab.study.charts import edge, styled, with_slider
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.decoders import ATTENTION, ATTENTIONS, BUNDLE, LAYERS, PYTORCH, RECURRENCES, decoders_of
from seqlab_studies.lib.timing import (
    ALL,
    BLOCK,
    BYTES,
    LAST,
    PAIRS,
    READS,
    ROWS,
    WRITES,
    Line,
    Seconds,
    Sizes,
    again,
    crossover,
    exponent,
    growth,
    known_reading,
    known_writing,
    least,
    on_gpu,
    reading,
    taken,
    writing,
)

if TYPE_CHECKING:
    from altair import TopLevelMixin

PLACES = (16, 64, 256, 1024, 4096, 8192)
"""Tokens read before one is written; the first and the last are judged."""
AT, TAIL = 1024, 3
LENGTHS = {PYTORCH: (64, 256, AT, 2048, 4096, 8192, 16384), BUNDLE: (64, 256, AT, 2048, 4096, 8192)}
"""Lengths read at once; the last TAIL of each are judged. In the bundle all weights of 16,384 tokens would be 4 GB."""
TWENTY, AGAIN = "reading, twenty times", "reading, once more"
SQUARE = Rule("exponent of the time in length", low=1.75, high=2.25, beyond=0.25)
"""Nearer to 2 than to 1.5, and refuted beyond 1.5 and 2.5."""
ONCE = Rule("exponent of the time in length", low=0.75, high=1.25, beyond=0.25)
GROWTH = f"time of a token, or bytes of the state, at position {PLACES[-1]:,} over {PLACES[0]},"
GROWS, STAYS = Rule(GROWTH, low=1.5, beyond=0.4), Rule(GROWTH, high=1.1, beyond=0.4)
SOONER = Rule("tokens from which on it takes less time than attention", high=4096, beyond=4096)
"""Refuted where no measured length is long enough: then twice the longest counts."""
SLOWER = Rule(f"time a token of writing, over that of reading {AT:,} tokens,", low=10, beyond=5)
"""Ten is the least that the lectures say of steps one after the other."""


def each(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}, {runtime}" for name in names for runtime in LENGTHS)


class Pace(Study):
    name = "pace"
    question = "Where does attention become slower than a recurrence?"
    matched = (
        f"Models of {LAYERS} layers without positions, of random weights, each so wide that it has within 5% as many "
        "parameters as attention of 64 channels (512 on a GPU), one text at a time, through seqlab's decoders: "
        "PyTorch, and the bundle that seqlab export writes, in onnxruntime. On a CPU the processor time of one "
        "thread, so that what else runs there counts little; all are timed in turns, and each time is the least of its "
        "rounds (it was a median until the controls showed how much other work on the machine moves it). Exponents "
        f"are slopes over the {TAIL} longest lengths. Seeds repeat the times, with the same weights. The bytes are "
        "those of the tensors that the bundle's graph takes and gives back."
    )
    why = (
        "Attention weighs a token by all before it, so what it keeps and the work of a token grow with the text; a "
        "recurrence has a state of one size."
    )
    change = "Wider models, several texts at a time, more threads, a GPU, caches that are written in place."
    claims = (
        Claim(
            "quadratic",
            "Attention reads in time quadratic in the length of the text.",
            "L2 and L3, claim 5",
            each(*(f"{name} {READS}" for name in ATTENTIONS)),
            SQUARE,
            (
                Control(PAIRS, SQUARE, True, "Twice the rows are four times the products."),
                Control(ROWS, SQUARE, False, "Twice the rows are twice the products."),
            ),
        ),
        Claim(
            "linear",
            "A recurrence reads in time linear in the length of the text.",
            "L2 and L3, claim 5",
            each(*(f"{name} {READS}" for name in RECURRENCES)),
            ONCE,
            (
                Control(ROWS, ONCE, True, "Twice the rows are twice the products."),
                Control(PAIRS, ONCE, False, "Twice the rows are four times the products."),
            ),
        ),
        Claim(
            "grows",
            "Attention's memory is a limit: its state, and the time of a token, grow with what was read.",
            "L2 and L3, claim 5",
            (*each(*(f"{name} {WRITES}" for name in ATTENTIONS)), *(f"{name}, {BYTES}" for name in ATTENTIONS)),
            GROWS,
            (
                Control(ALL, GROWS, True, "It is read again for each token."),
                Control(LAST, GROWS, False, "It is one, wherever it stands."),
            ),
        ),
        Claim(
            "stays",
            "A recurrence's state does not grow, nor does the time of a token.",
            "L2 and L3, claim 5",
            (*each(*(f"{name} {WRITES}" for name in RECURRENCES)), *(f"{name}, {BYTES}" for name in RECURRENCES)),
            STAYS,
            (
                Control(LAST, STAYS, True, "It is one, wherever it stands."),
                Control(ALL, STAYS, False, "It is read again for each token."),
            ),
        ),
        Claim(
            "sooner",
            "From 4,096 tokens on, or sooner, a recurrence is cheaper than attention.",
            "L2 and L3, claim 5",
            each(*(f"{name} {does} sooner" for does in (READS, WRITES) for name in RECURRENCES)),
            SOONER,
            (
                Control(f"{ROWS}, sooner", SOONER, True, f"Both take as many products at {AT:,} rows."),
                Control(f"{PAIRS}, sooner", SOONER, False, f"They do so below {AT:,} rows alone."),
            ),
        ),
        Claim(
            "one by one",
            "A decoder of attention writes one token after the other all the same.",
            "L1, claim 5",
            each(*(f"{name} {WRITES} slower" for name in ATTENTIONS)),
            SLOWER,
            (
                Control(TWENTY, SLOWER, True, "It is twenty times the work."),
                Control(AGAIN, SLOWER, False, "It is the same work."),
            ),
        ),
    )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if scale == "gpu" and not torch.cuda.is_available():
            return Measured({}, [], {claim.key: "needs a GPU" for claim in self.claims})
        width, rounds, device = {"smoke": (16, 1, "cpu"), "cpu": (64, 5, "cpu"), "gpu": (512, 5, "cuda")}[scale]
        clock = on_gpu if scale == "gpu" else time.process_time
        lengths: Mapping[str, tuple[int, ...]] = LENGTHS
        places: tuple[int, ...] = PLACES
        needs: dict[str, str] = {}
        if scale == "smoke":
            lengths, places = {PYTORCH: (BLOCK, 512, AT)}, (PLACES[0], AT)
            needs = {claim.key: "smoke scale reads no long text, and exports nothing" for claim in self.claims}
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            decoders = decoders_of(width, device, BUNDLE in lengths)
            works = reading(decoders, lengths)
            once = works[Line(ATTENTION, READS, PYTORCH), AT][0]
            works |= known_reading([length for length in lengths[PYTORCH] if length >= BLOCK])
            works |= {(Line(TWENTY, READS), AT): (partial(again, once, 20), 1), (Line(AGAIN, READS), AT): (once, 1)}
            seconds = taken(works, rounds, clock)
            works, sizes = writing(decoders, places)
            works |= known_writing(places)
            seconds |= taken(works, 3 * rounds, clock)
        finally:
            torch.set_num_threads(threads)
        sizes = {line: of for line, of in sizes.items() if line.runtime == BUNDLE}
        return Measured(values_of(seconds, sizes), points_of(seconds, sizes), needs)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        does, column, title = {
            "quadratic": ((READS,), "amount", "milliseconds to read them"),
            "linear": ((READS,), "amount", "milliseconds to read them"),
            "grows": ((WRITES, BYTES), "times", f"times that after {PLACES[0]} tokens"),
            "stays": ((WRITES, BYTES), "times", f"times that after {PLACES[0]} tokens"),
            "sooner": ((READS, WRITES), "cheaper", "attention's time / theirs"),
            "one by one": ((READS, WRITES), "a token", "milliseconds a token"),
        }[claim.key]
        alone = claim.key == "one by one"
        models = [*({"sooner": RECURRENCES, "one by one": ATTENTIONS}.get(claim.key, ATTENTIONS | RECURRENCES))]
        rows = [
            row
            | {"shown": row["runtime"] if alone or row["does"] == READS else f"{row['does']}, {row['runtime']}"}
            | {"who": f"{row['model']} {row['does']}" if alone else row["model"]}
            for row in points
            if row["does"] in does and row["model"] in models and column in row
        ]
        options = [*dict.fromkeys(row["shown"] for row in rows)]
        picked = alt.param(
            name="picked", value=next(iter(options), ""), bind=alt.binding_select(options=options, name="shown: ")
        )
        ticks, numbers = alt.Axis(format=",d", values=[2**4, 2**7, 2**10, 2**13]), alt.Axis(format=",~g", tickCount=3)
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="tokens", scale=alt.Scale(type="log", base=2), axis=ticks),
            alt.Y(f"median({column}):Q", title=title, scale=alt.Scale(type="log"), axis=numbers),
            alt.Color("model:N", title=None, scale=alt.Scale(domain=models)),
            alt.Shape("model:N", title=None, scale=alt.Scale(domain=models)),
            tooltip=["model:N", "does:N", "length:Q", f"median({column}):Q"],
        )
        if alone:
            base = base.encode(alt.StrokeDash("does:N", title=None))
        chosen = base.transform_filter(only := "datum.shown == picked").add_params(picked)
        lines = chosen.mark_line() + chosen.mark_point(filled=True, size=50)
        if claim.key == "sooner":
            lines += edge("y", 1, "as long as attention")
        value = alt.X(f"{column}:Q", title=title, axis=numbers)
        of = alt.Y("who:N", title=None, sort=[*dict.fromkeys(row["who"] for row in rows)])
        return styled(with_slider(lines.properties(width=220, height=240), rows, "length", value, of, "tokens", only))


def values_of(seconds: Seconds, sizes: Sizes) -> dict[str, float]:
    """Values of the claims, by case."""
    values = {f"{line.model}, {BYTES}": of[max(of)] / of[min(of)] for line, of in sizes.items()}
    took = {line: least(rounds) for line, rounds in seconds.items()}
    for line, ours in took.items():
        name, does, runtime = line
        if name in (TWENTY, AGAIN):
            values[name] = ours[AT] / took[Line(ATTENTION, READS, PYTORCH)][AT]
            continue
        ending = f", {runtime}"
        case = f"{name} {does}{ending}" if runtime else name
        values[case] = growth(ours) if does == WRITES else exponent(dict(sorted(ours.items())[-TAIL:]))
        if name in RECURRENCES:
            values[f"{name} {does} sooner{ending}"] = crossover(ours, took[line._replace(model=ATTENTION)])
        if name in ATTENTIONS and does == WRITES:
            values[f"{name} {does} slower{ending}"] = ours[AT] / (took[line._replace(does=READS)][AT] / AT)
    many, few = took[Line(PAIRS, READS)], took[Line(ROWS, READS)]
    return values | {f"{ROWS}, sooner": crossover(few, many), f"{PAIRS}, sooner": crossover(many, few)}


def points_of(seconds: Seconds, sizes: Sizes) -> Points:
    """Rows for the figures: milliseconds, or bytes."""
    amounts: dict[Line, dict[int, float]] = {line: dict(of) for line, of in sizes.items()}
    amounts |= {line: {at: 1e3 * of for at, of in least(rounds).items()} for line, rounds in seconds.items()}
    points: Points = []
    for line, of in amounts.items():
        for length, amount in of.items():
            row = {**line._asdict(), "length": length, "amount": amount, "times": amount / of[min(of)]}
            if line.does != BYTES and line.runtime:
                row["a token"] = amount / length if line.does == READS else amount
                row["cheaper"] = amounts[line._replace(model=ATTENTION)][length] / amount
            points.append(row)
    return points
