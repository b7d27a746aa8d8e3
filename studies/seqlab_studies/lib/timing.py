"""Time in seconds by length: prefill of a text, and one decode step after it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import linear_regression
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

PAIRS, ROWS = "blocks with one another", "blocks with a matrix"
ALL, LAST = "all that was read", "the last of it"
READS, WRITES, BYTES = "reads", "writes", "bytes of its state"
BLOCK, WIDTH, COLUMNS = 256, 64, 1024
"""Sizes of the baseline products, whose number is known: BLOCK rows of WIDTH by each other, or by COLUMNS columns."""
STEPS = 16
"""Number of decode steps per timing, each after the same text."""


Work = Callable[[], object]
Times = dict[str, list[float]]


class Line(NamedTuple):
    """A series timed over lengths; a series without a model has no runtime."""

    model: str
    does: str
    runtime: str = ""


Works = dict[tuple[Line, int], tuple[Work, int]]
"""Work timed at each length, and its number of repeats per timing."""
Seconds = dict[Line, dict[int, list[float]]]
"""Seconds of each round, by length."""
Sizes = dict[Line, dict[int, int]]
"""Bytes by length."""
Decoders = Mapping[tuple[str, str], Any]
"""Decoders by model and runtime."""


def timed(works: Mapping[str, Work], rounds: int, clock: Callable[[], float]) -> Times:
    """Seconds per round of each work, run in turn in every round, after an untimed warm-up round."""
    found: Times = {name: [] for name in works}
    for at in range(-1, rounds):
        for name, work in works.items():
            begun = clock()
            work()
            spent = clock() - begun
            if at >= 0:
                found[name].append(spent)
    return found


def on_gpu() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def reading(decoders: Decoders, lengths: Mapping[str, Iterable[int]]) -> Works:
    """Prefill of each model, at the lengths of its runtime."""
    return {
        (Line(name, READS, runtime), length): (partial(decoder.prefill, *text(decoder, length)), often(length))
        for (name, runtime), decoder in decoders.items()
        for length in lengths[runtime]
    }


def writing(decoders: Decoders, places: Iterable[int]) -> tuple[Works, Sizes]:
    """Decode step of each model after each number of tokens, and the size of its state there in bytes."""
    works: Works = {}
    sizes: Sizes = {}
    for (name, runtime), decoder in decoders.items():
        for place in places:
            tokens, mask = text(decoder, place)
            _, state = decoder.prefill(tokens, mask)
            works[Line(name, WRITES, runtime), place] = partial(decoder.step, tokens[:, 0], state), STEPS
            sizes.setdefault(Line(name, BYTES, runtime), {})[place] = sum(entry.nbytes for entry in state.values())
    return works, sizes


def text(decoder: Any, length: int) -> tuple[Any, Any]:
    """Random tokens (1, T), and a mask without padding."""
    tokens = np.random.default_rng(length).integers(0, decoder.vocab_size, (1, length))
    return tokens, np.ones((1, length), dtype=np.bool_)


def often(length: int) -> int:
    """Number of repeats per timing, so that short times exceed the clock's resolution."""
    return max(1, 1024 // length)


def known_reading(lengths: Iterable[int]) -> Works:
    """Baseline products, whose number is known, for `reading`."""
    made = {PAIRS: pairs, ROWS: rows}
    return {
        (Line(name, READS), length): (work(length), often(length)) for length in lengths for name, work in made.items()
    }


def known_writing(places: Sequence[int]) -> Works:
    """Products of a query with all vectors up to a position, and with the last vector alone."""
    x, query = torch.randn(places[-1], WIDTH), torch.randn(WIDTH)
    works: Works = {}
    for place in places:
        for name, some in ((ALL, x[:place]), (LAST, x[place - 1 : place])):
            works[Line(name, WRITES), place] = partial(torch.mv, some, query), 64 * STEPS
    return works


def pairs(length: int) -> Work:
    """Products of every pair of blocks of BLOCK rows: doubling the length quadruples their number."""
    x = torch.randn(length, WIDTH)
    return partial(products, x, x)


def rows(length: int) -> Work:
    """Products of each block of BLOCK rows with COLUMNS columns: as many as in `pairs` at a length of COLUMNS."""
    return partial(products, torch.randn(length, WIDTH), torch.randn(COLUMNS, WIDTH))


def products(left: Tensor, right: Tensor) -> None:
    for ours in torch.split(left, BLOCK):
        for theirs in torch.split(right, BLOCK):
            torch.mm(ours, theirs.T)


def again(work: Work, times: int) -> None:
    for _ in range(times):
        work()


def taken(works: Mapping[tuple[Line, int], tuple[Work, int]], rounds: int, clock: Callable[[], float]) -> Seconds:
    """Seconds of a single run of each work, in every round, after an untimed warm-up round."""
    found = timed({str(key): partial(again, *work) for key, work in works.items()}, rounds, clock)
    seconds: Seconds = {}
    for (line, length), (_, times) in works.items():
        seconds.setdefault(line, {})[length] = [spent / times for spent in found[str((line, length))]]
    return seconds


def least(rounds: Mapping[int, list[float]]) -> dict[int, float]:
    """Minimum time over all rounds, by length, since other load on the machine can only add to it."""
    return {length: min(of) for length, of in rounds.items()}


def exponent(amounts: Mapping[int, float]) -> float:
    """Slope of the log amounts over the log lengths."""
    lengths, found = torch.tensor(list(amounts.items()), dtype=torch.float64).log().T.tolist()
    return linear_regression(lengths, found).slope


def growth(times: Mapping[int, float]) -> float:
    """Ratio of the times at the greatest and the smallest length."""
    return times[max(times)] / times[min(times)]


def crossover(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    """Length above which ours take less time, interpolated on a log-log scale. The smallest length if ours always take
    less, and twice the greatest length if ours do not take less there."""
    lengths = sorted(ours)
    above = [math.log(ours[length] / theirs[length]) for length in lengths]
    last = max((place for place, of in enumerate(above) if of >= 0), default=-1)
    if last < 0:
        return float(lengths[0])
    if last == len(lengths) - 1:
        return 2.0 * lengths[-1]
    part = above[last] / (above[last] - above[last + 1])
    return float(lengths[last] * (lengths[last + 1] / lengths[last]) ** part)
