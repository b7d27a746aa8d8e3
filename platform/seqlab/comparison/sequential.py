"""Comparison with seeds added until the order of the models is decided, at a controlled rate of false alarms.

The rows are looked at with 5 seeds each, then with 6, and so on. A pair told apart at one look stays decided. The looks
share the significance level by alpha spending (Lan & DeMets 1983, "Discrete sequential boundaries for clinical
trials"): at a share t of the seeds, their Pocock-type function has spent LEVEL ln(1 + (e - 1) t). Each look tests at
the part that it adds, so that by Bonferroni's inequality a false difference is found in at most LEVEL of experiments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.comparison.statistics import LEVEL, Estimate, better

FIRST_LOOK = 5
"""Seeds of each row at the first look."""


class Decision(NamedTuple):
    """State of a sequential comparison of K rows.

    Attributes:
        told: pairs told apart so far (K, K), as in `statistics.better`.
        seeds: number of seeds at the last look that took place; 0 = none yet.
        wanting: rows that need more seeds, with the number needed for the next look; empty = decided or spent.
    """

    told: NDArray[np.bool_]
    seeds: int
    wanting: dict[int, int]


def level(seeds: int, most: int) -> float:
    """Significance level of the look at `seeds` seeds, of `most` at the last."""
    before = 0 if seeds == min(FIRST_LOOK, most) else seeds - 1
    return _spent(seeds / most) - _spent(before / most)


def decide(estimate: Callable[[int, int], Estimate], counts: Sequence[int], most: int) -> Decision:
    """Looks at K rows, as far as their seeds reach.

    The looks depend on the seeds alone, so that a repeated call with more seeds repeats the earlier ones.

    Args:
        estimate: mean of a row over its first seeds, given the row and their number; lower is better.
        counts: number of seeds of each row.
        most: number of seeds at the last look.
    """
    told = np.zeros((len(counts), len(counts)), dtype=bool)
    used, looked = [0] * len(counts), 0
    for seeds in range(min(FIRST_LOOK, most), most + 1):
        undecided = [not row.all() for row in told | told.T | np.eye(len(told), dtype=bool)]
        wanting = {row: seeds for row, open_ in enumerate(undecided) if open_ and counts[row] < seeds}
        if wanting or not any(undecided):
            return Decision(told, looked, wanting)
        used = [seeds if open_ else before for open_, before in zip(undecided, used, strict=True)]
        found = [estimate(row, count) for row, count in enumerate(used)]
        values, errors, freedoms = (
            np.array([getattr(one, name) for one in found], dtype=float) for name in ("value", "error", "freedom")
        )
        new = better(Estimate(values, errors, freedoms), level(seeds, most))
        told |= new & ~told.T
        looked = seeds
    return Decision(told, looked, {})


def _spent(share: float) -> float:
    return LEVEL * math.log(1 + (math.e - 1) * share)
