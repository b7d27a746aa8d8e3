"""What reading and writing take by the length of the text, timed, in PyTorch and in the bundle that is exported."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from seqlab.attention import Attention, GatedDeltaNet
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.mixer import Mixer
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LSTM, Mamba
from seqlab.studies.charts import styled
from seqlab.studies.cost import exponent
from seqlab.studies.rules import Claim, Control, Rule
from seqlab.studies.speed import Work, matched, on_gpu, size_of, timed
from seqlab.studies.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

VOCAB, LAYERS, STEPS = 64, 2, 16
PLACES = (16, 64, 256, 1024, 4096, 8192)
"""Tokens read before one is written; the first and the last are judged."""
AT, TAIL = 1024, 3
PYTORCH, BUNDLE = "PyTorch", "the bundle"
LENGTHS = {PYTORCH: (64, 256, AT, 2048, 4096, 8192, 16384), BUNDLE: (64, 256, AT, 2048, 4096, 8192)}
"""What is read at once; of each the last TAIL are judged. In the bundle all weights of 16,384 tokens would be 4 GB."""
ATTENTION = "attention"
ATTENTIONS: dict[str, Callable[..., Mixer]] = {
    ATTENTION: Attention,
    "attention of one key head": partial(Attention, num_kv_heads=1),
}
RECURRENCES: dict[str, Callable[..., Mixer]] = {"GRU": GRU, "LSTM": LSTM, "Mamba": Mamba, "GatedDeltaNet": GatedDeltaNet}
READS, WRITES, BYTES = "reads", "writes", "bytes of its state"
PAIRS, ROWS, BLOCK = "blocks with one another", "blocks with a matrix", 256
"""Products of as many numbers each: of every BLOCK rows with every other, or with AT columns."""
ALL, LAST = "all that was read", "the last of it"
TWENTY, AGAIN = "reading, twenty times", "reading, once more"
SQUARE = Rule("exponent of the time in length", low=1.75, high=2.25, beyond=0.25)
"""Nearer to 2 than to 1.5, and refuted beyond 1.5 and 2.5."""
ONCE = Rule("exponent of the time in length", low=0.75, high=1.25, beyond=0.25)
GROWTH = f"time of a token, or bytes of the state, at position {PLACES[-1]:,} over {PLACES[0]},"
GROWS, STAYS = Rule(GROWTH, low=1.5, beyond=0.4), Rule(GROWTH, high=1.1, beyond=0.4)
SOONER = Rule("tokens from which on it takes less time than attention", high=4096, beyond=4096)
"""Refuted where all that is measured is too short: then twice the longest counts."""
SLOWER = Rule(f"time a token of writing, over that of reading {AT:,} tokens,", low=10, beyond=5)
"""Ten is the least that the lectures say of steps one after the other."""


def each(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}, {runtime}" for name in names for runtime in LENGTHS)


class Pace(Study):
    name = "pace"
    question = "Where does attention become slower than a recurrence?"
    matched = (
        f"Models of {LAYERS} layers without positions, of random weights, each so wide that it has within 5% as many "
        "parameters as attention of 64 channels (512 on a GPU), one text at a time, through seqlab's decoders: PyTorch, "
        "and the bundle that seqlab export writes, in onnxruntime. On a CPU the processor time of one thread, so that "
        "what else runs there counts little; all are timed in turns, and each time is a median of rounds. Exponents "
        f"are slopes over the {TAIL} longest lengths. Seeds differ by weights, and repeat the times. The bytes are "
        "those of the state's own tensors."
    )
    why = "TO BE SAID."
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
            "A recurrence is cheaper than attention for any text of usual length: from 4,096 tokens on, or sooner.",
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
        width, rounds, device = {"smoke": (16, 1, "cpu"), "cpu": (64, 3, "cpu"), "gpu": (512, 5, "cuda")}[scale]
        clock = on_gpu if scale == "gpu" else time.process_time
        threads = torch.get_num_threads()
        with torch.random.fork_rng(), TemporaryDirectory() as folder:
            torch.manual_seed(seed)
            torch.set_num_threads(1)
            try:
                decoders = decoders_of(width, device, None if scale == "smoke" else Path(folder))
                longest = AT if scale == "smoke" else max(PLACES[-1], *LENGTHS[PYTORCH])
                seconds = taken(reading(decoders, longest), rounds, clock)
                writes, sizes = writing(decoders, longest)
                seconds |= taken(writes, 3 * rounds, clock)
            finally:
                torch.set_num_threads(threads)
        needs = {claim.key: "smoke scale reads no long text" for claim in self.claims} if scale == "smoke" else {}
        return Measured(values_of(seconds, sizes), points_of(seconds, sizes), needs)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        does, column, title = {
            "quadratic": ((READS,), "amount", "milliseconds to read it"),
            "linear": ((READS,), "amount", "milliseconds to read it"),
            "grows": ((WRITES, BYTES), "times", f"over that at position {PLACES[0]}"),
            "stays": ((WRITES, BYTES), "times", f"over that at position {PLACES[0]}"),
            "sooner": ((READS, WRITES), "cheaper", "attention's time / theirs"),
            "one by one": ((READS, WRITES), "a token", "milliseconds a token"),
        }[claim.key]
        alone = claim.key == "one by one"
        models = [*({"sooner": RECURRENCES, "one by one": ATTENTIONS}.get(claim.key, ATTENTIONS | RECURRENCES))]
        rows = [
            {**row, "shown": row["runtime"] if alone or row["does"] == READS else f"{row['does']}, {row['runtime']}"}
            for row in points
            if row["does"] in does and row["model"] in models and column in row
        ]
        options = [*dict.fromkeys(row["shown"] for row in rows)]
        picked = alt.param(
            name="picked", value=next(iter(options), ""), bind=alt.binding_select(options=options, name="shown: ")
        )
        ticks = alt.Axis(format="~s", tickCount=5)
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            alt.X("length:Q", title="tokens", scale=alt.Scale(type="log", base=2), axis=ticks),
            alt.Y(f"median({column}):Q", title=title, scale=alt.Scale(type="log"), axis=alt.Axis(format="~g", tickCount=5)),
            alt.Color("model:N", title=None, scale=alt.Scale(domain=models)),
            alt.Shape("model:N", title=None, scale=alt.Scale(domain=models)),
            tooltip=["model:N", "does:N", "length:Q", f"median({column}):Q"],
        )
        if alone:
            base = base.encode(alt.StrokeDash("does:N", title=None))
        lines = (base.mark_line() + base.mark_point(filled=True, size=50)).transform_filter("datum.shown == picked")
        one = alt.Chart(alt.InlineData(values=[{"one": 1}])).mark_rule(strokeDash=[4, 3]).encode(y="one:Q")
        drawn = lines.add_params(picked) + one if claim.key == "sooner" else lines.add_params(picked)
        return styled(drawn.properties(width=220, height=240))


class Line(NamedTuple):
    """What is timed over lengths; controls have no runtime."""

    model: str
    does: str
    runtime: str = ""


Works = dict[tuple[Line, int], tuple[Work, int]]
"""What is timed at a length, and how often at a time."""
Seconds = dict[Line, dict[int, list[float]]]
"""By length, of each round."""
Decoders = dict[tuple[str, str], Any]
"""By model and runtime."""


def decoders_of(width: int, device: str, folder: Path | None) -> Decoders:
    """Each model of as many parameters as attention of a width, and its bundle, written to a folder where there is one."""

    def model(make: Callable[..., Mixer], wide: int) -> DecoderLM:
        return DecoderLM(VOCAB, AT, d_model=wide, num_layers=LAYERS, mixer=make, positions=NoPositions)

    found: Decoders = {}
    size = size_of(model(Attention, width))
    for name, make in (ATTENTIONS | RECURRENCES).items():
        # What speed.py matches are layers; it needs their sizes alone.
        made = model(make, matched(partial(model, make), size))  # type: ignore[arg-type]
        if folder is not None:
            from seqlab_export import export_bundle, open_bundle

            provider: Any = "cuda" if device == "cuda" else "cpu"
            export_bundle(made, None, folder / name, seq_len=AT, provider=provider)
            found[name, BUNDLE] = open_bundle(folder / name, provider=provider, threads=1)
        found[name, PYTORCH] = TorchDecoder(made.to(device))
    return found


def reading(decoders: Decoders, longest: int) -> Works:
    """Whole texts at once, and products whose number is known."""
    works: Works = {}
    for (name, runtime), decoder in decoders.items():
        for length in LENGTHS[runtime]:
            if length <= longest:
                works[Line(name, READS, runtime), length] = partial(decoder.prefill, *text(length)), max(1, AT // length)
    x, matrix = torch.randn(8 * AT, 64), torch.randn(AT, 64)
    for length in (BLOCK, *LENGTHS[BUNDLE][2:]):
        if length <= longest:
            works[Line(PAIRS, READS), length] = partial(products, x[:length], x[:length]), max(1, AT // length)
            works[Line(ROWS, READS), length] = partial(products, x[:length], matrix), max(1, AT // length)
    for name, times in ((TWENTY, 20), (AGAIN, 1)):
        works[Line(name, READS), AT] = partial(again, partial(decoders[ATTENTION, PYTORCH].prefill, *text(AT)), times), 1
    return works


def writing(decoders: Decoders, longest: int) -> tuple[Works, dict[Line, dict[int, int]]]:
    """One token after so many, and the bytes of the state that it is given."""
    works: Works = {}
    sizes: dict[Line, dict[int, int]] = {}
    places = [place for place in PLACES if place <= longest]
    for (name, runtime), decoder in decoders.items():
        for place in places:
            tokens, mask = text(place)
            _, state = decoder.prefill(tokens, mask)
            works[Line(name, WRITES, runtime), place] = partial(decoder.step, tokens[:, 0], state), STEPS
            if runtime == BUNDLE:
                sizes.setdefault(Line(name, BYTES, runtime), {})[place] = sum(part.nbytes for part in state.values())
    x, query = torch.randn(8 * AT, 64), torch.randn(64)
    for place in places:
        works[Line(ALL, WRITES), place] = partial(torch.mv, x[:place], query), 64 * STEPS
        works[Line(LAST, WRITES), place] = partial(torch.mv, x[place - 1 : place], query), 64 * STEPS
    return works, sizes


def text(length: int) -> tuple[Any, Any]:
    """Random tokens (1, T), none of them a pad."""
    return np.random.default_rng(length).integers(0, VOCAB, (1, length)), np.ones((1, length), dtype=np.bool_)


def products(left: torch.Tensor, right: torch.Tensor) -> None:
    """Of each BLOCK rows of one with each of the other."""
    for ours in left.split(BLOCK):
        for theirs in right.split(BLOCK):
            torch.mm(ours, theirs.T)


def again(work: Work, times: int) -> None:
    for _ in range(times):
        work()


def taken(works: Works, rounds: int, clock: Callable[[], float]) -> Seconds:
    """Seconds of each, all in turns."""
    found = timed({str(key): partial(again, *work) for key, work in works.items()}, rounds, clock)
    seconds: Seconds = {}
    for (line, length), (_, times) in works.items():
        seconds.setdefault(line, {})[length] = [one / times for one in found[str((line, length))]]
    return seconds


def middle(rounds: Mapping[int, list[float]]) -> dict[int, float]:
    return {length: median(of) for length, of in rounds.items()}


def growth(rounds: Mapping[int, list[float]]) -> float:
    """Of the longest over the shortest: the median over rounds."""
    return median(far / near for far, near in zip(rounds[max(rounds)], rounds[min(rounds)], strict=True))


def crossover(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """The length from which on ours take less, between two lengths as if times were powers: the shortest where they
    always do, and twice the longest where they do not at the longest."""
    lengths = sorted(ours)
    above = [np.log(ours[length] / theirs[length]) for length in lengths]
    if above[-1] >= 0:
        return 2.0 * lengths[-1]
    last = max((place for place, of in enumerate(above) if of >= 0), default=-1)
    if last < 0:
        return float(lengths[0])
    part = above[last] / (above[last] - above[last + 1])
    return float(lengths[last] * (lengths[last + 1] / lengths[last]) ** part)


def values_of(seconds: Seconds, sizes: Mapping[Line, Mapping[int, int]]) -> dict[str, float]:
    """By case."""
    values: dict[str, float] = {}
    once = seconds[Line(ATTENTION, READS, PYTORCH)][AT]
    for line, rounds in seconds.items():
        name, does, runtime = line
        ours, ending = middle(rounds), f", {runtime}" if runtime else ""
        if name in (TWENTY, AGAIN):
            values[name] = median(our / their for our, their in zip(rounds[AT], once, strict=True))
            continue
        case = f"{name} {does}{ending}" if runtime else name
        values[case] = growth(rounds) if does == WRITES else exponent(dict(sorted(ours.items())[-TAIL:]))
        if name in RECURRENCES:
            values[f"{name} {does} sooner{ending}"] = crossover(ours, middle(seconds[Line(ATTENTION, does, runtime)]))
        if name in ATTENTIONS and does == WRITES:
            read = median(seconds[Line(name, READS, runtime)][AT]) / AT
            values[f"{name} {does} slower{ending}"] = ours[AT] / read
    pairs, rows = middle(seconds[Line(PAIRS, READS)]), middle(seconds[Line(ROWS, READS)])
    values |= {f"{ROWS}, sooner": crossover(rows, pairs), f"{PAIRS}, sooner": crossover(pairs, rows)}
    return values | {f"{line.model}, {BYTES}": of[max(of)] / of[min(of)] for line, of in sizes.items()}


def points_of(seconds: Seconds, sizes: Mapping[Line, Mapping[int, int]]) -> Points:
    """Rows for the figures: milliseconds, or bytes."""
    amounts: dict[Line, dict[int, float]] = {line: dict(of) for line, of in sizes.items()}
    amounts |= {line: {at: 1e3 * of for at, of in middle(rounds).items()} for line, rounds in seconds.items()}
    points: Points = []
    for line, of in amounts.items():
        for length, amount in of.items():
            row = {**line._asdict(), "length": length, "amount": amount, "times": amount / of[min(of)]}
            if line.does != BYTES and line.runtime:
                row["a token"] = amount / length if line.does == READS else amount
                row["cheaper"] = amounts[line._replace(model=ATTENTION)][length] / amount
            points.append(row)
    return points
