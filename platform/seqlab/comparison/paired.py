"""Paired comparison of two models on the same examples.

R runs of a model with different seeds; B resamples of the examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqlab.comparison.scores import Scores
from seqlab.comparison.statistics import (
    LEVEL,
    MOST_SEEDS,
    Estimate,
    difference,
    examples_needed,
    holm,
    joined,
    over_examples,
    resampled,
    seeds_needed,
)

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Model:
    """Attributes:
    name: name of the model's row.
    seeds: seed of each run.
    scores: scores of each run.
    """

    name: str
    seeds: Sequence[str]
    scores: Sequence[Scores]


@dataclass(frozen=True)
class Pair:
    """Attributes:
    first, second: the compared models.
    found: first - second, with its standard error over examples and, if both have several seeds, over seeds.
    p: p-value of no difference, Holm-corrected for several comparisons.
    needed: sentence on the number of seeds or examples needed to detect a difference.
    """

    first: Model
    second: Model
    found: Estimate
    p: float
    needed: str

    @property
    def seeds(self) -> str:
        """Number of seeds of each model."""
        counts = sorted({len(model.seeds) for model in (self.first, self.second)}, reverse=True)
        return f"{' and '.join(map(str, counts))} seed{'s' if counts != [1] else ''}"

    @property
    def numbers(self) -> str:
        """Difference and interval, rounded to two significant digits of the interval."""
        return _numbers(float(self.found.value), float(self.found.half_width))

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        first, second = self.first.name, self.second.name
        if self.p >= LEVEL:
            return f"{first} and {second}: not told apart; {self.needed} ({self.seeds})"
        scores = self.first.scores[0]
        better, worse = (first, second) if (self.found.value > 0) == scores.more else (second, first)
        by = _numbers(abs(float(self.found.value)), float(self.found.half_width))
        if min(len(self.first.seeds), len(self.second.seeds)) == 1:
            return f"{better} beats {worse} on these examples by {by} {scores.unit} ({self.seeds}: undecided)"
        return f"{better} is better than {worse} by {by} {scores.unit} ({self.seeds})"


def compare_pairs(first: Model, others: Sequence[Model]) -> list[Pair]:
    """Compares the first model with each of the others. The p-values are Holm-corrected.

    Raises:
        ValueError: the models were not tested on the same examples.
    """
    pairs = [_pair(first, other, LEVEL / len(others)) for other in others]
    return [replace(pair, p=p) for pair, p in zip(pairs, holm([pair.p for pair in pairs]), strict=True)]


def table_of(pairs: Sequence[Pair]) -> Table:
    """Table of the pairs for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for title in (
        "",
        f"difference, {pairs[0].first.scores[0].unit}",
        "p" if len(pairs) == 1 else "p (Holm)",
        "n",
        "examples",
    ):
        table.add_column(title, justify="left" if not title else "right")
    for pair in pairs:
        names, p = f"{pair.first.name} - {pair.second.name}", f"{pair.p:.3f}" if pair.p >= 0.001 else "<0.001"
        table.add_row(Text(names), pair.numbers, p, pair.seeds, str(len(pair.first.scores[0].examples)))
    return table


def _pair(first: Model, second: Model, level: float) -> Pair:
    """Compares two models; `level` is the significance level of the smallest p-value under Holm's correction."""
    count = len(first.scores[0].examples)
    for model in (first, second):
        for scores in model.scores:
            if (scores.unit, scores.examples) != (first.scores[0].unit, first.scores[0].examples):
                raise ValueError(
                    f"{first.name} and {model.name} were not tested on the same examples; a paired comparison needs "
                    "one test split, cut into the same rows by one tokenizer"
                )
    (ours, ours_drawn), (theirs, theirs_drawn) = (_scored(model) for model in (first, second))
    value = ours.mean() - theirs.mean()
    found = of_examples = over_examples(value, ours_drawn.mean(1) - theirs_drawn.mean(1), count)
    examples = examples_needed(of_examples, count, level=level)
    needed = "there is no difference"
    if examples is not None:
        needed = f"about {examples:,} test examples would be needed, there are {count:,}"
    if min(len(ours), len(theirs)) > 1:
        paired = sorted(first.seeds) == sorted(second.seeds)
        if paired:
            ours, theirs = (scores[np.argsort(model.seeds)] for scores, model in ((ours, first), (theirs, second)))
        of_seeds = difference(ours, theirs, paired=paired)
        found = joined(of_seeds, of_examples)
        spread = np.std(ours - theirs, ddof=1) if paired else math.hypot(ours.std(ddof=1), theirs.std(ddof=1))
        fixed, samples = float(of_examples.error), 1 if paired else 2
        seeds = seeds_needed(value, float(spread), fixed=fixed, samples=samples, level=level)
        if seeds is not None:
            needed = f"about {max(seeds, len(ours) + 1, len(theirs) + 1)} seeds would be needed"
        elif examples is not None and examples <= count:
            needed = f"over {MOST_SEEDS:,} seeds would be needed"
    return Pair(first, second, found, float(found.p), needed)


def _scored(model: Model) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores of a model's runs, (R,), and on resampled examples, (B, R)."""
    parts = np.stack([scores.parts for scores in model.scores], axis=1)
    total = model.scores[0].total
    return total(parts.sum(0)), total(resampled(parts))


def _numbers(value: float, half_width: float) -> str:
    decimals = max(0, 1 - math.floor(math.log10(half_width))) if half_width > 1e-6 else 4
    return f"{value:.{decimals}f} ± {half_width:.{decimals}f}"
