"""Statistics of a few seeds and many examples: means with intervals, differences, ranks, and required sample sizes.
Leading dimensions (...) are separate experiments.

S seeds, N examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import nctdtr, stdtr, stdtridf, stdtrit

LEVEL = 0.05
"""Significance level, the maximum false positive rate; intervals have coverage 1 - `LEVEL`."""
POWER = 0.8
MOST_SEEDS = 1000
RESAMPLES, SEED = 1000, 12345
"""Number and seed of bootstrap resamples; the same as in sacrebleu, so that resamples agree."""
MOST_DRAWN = 10_000_000


@dataclass(frozen=True)
class Estimate:
    """A measured number and its uncertainty.

    Attributes:
        value: measured value (...).
        error: standard error of the value.
        freedom: degrees of freedom of the standard error.
    """

    value: Any
    error: Any
    freedom: Any

    @property
    def half_width(self) -> Any:
        """Half-width of the 95% interval around the value, by Student's t."""
        return stdtrit(self.freedom, 1 - LEVEL / 2) * self.error

    @property
    def p(self) -> Any:
        """Two-sided p-value of the hypothesis that the true value is 0, by Student's t."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(2 * stdtr(self.freedom, -np.abs(np.divide(self.value, self.error))), nan=1.0)


def mean(values: ArrayLike) -> Estimate:
    """Mean over S >= 2 seeds, (..., S)."""
    given = np.asarray(values, dtype=float)
    count = given.shape[-1]
    assert count > 1
    return Estimate(given.mean(-1), given.std(-1, ddof=1) / np.sqrt(count), count - 1)


def difference(ours: ArrayLike, theirs: ArrayLike, *, paired: bool) -> Estimate:
    """Difference between the means of two models over seeds, (..., S) and (..., S').

    Args:
        paired: whether runs at the same index share a seed.
    """
    return mean(np.subtract(ours, theirs)) if paired else unpaired(mean(ours), mean(theirs))


def unpaired(first: Estimate, second: Estimate) -> Estimate:
    """Difference between two independent estimates. The degrees of freedom are Welch's (1947), or 1 if an estimate has
    only 1 (two runs), where Welch's would give 10% false positives."""
    squares = np.square(first.error), np.square(second.error)
    fewest = np.minimum(first.freedom, second.freedom)
    with np.errstate(invalid="ignore"):
        freedom = sum(squares) ** 2 / (squares[0] ** 2 / first.freedom + squares[1] ** 2 / second.freedom)
    freedom = np.where(fewest > 1, np.nan_to_num(freedom, nan=1), fewest)
    return Estimate(first.value - second.value, np.sqrt(sum(squares)), freedom)


def joined(seeds: Estimate, examples: Estimate) -> Estimate:
    """Estimate with combined uncertainty over seeds and over examples: the squared half-widths are added. (With
    Satterthwaite's degrees of freedom, 12% of experiments with two seeds would find a false difference.)"""
    error, half_width = np.hypot(seeds.error, examples.error), np.hypot(seeds.half_width, examples.half_width)
    with np.errstate(invalid="ignore"):
        freedom = np.nan_to_num(stdtridf(1 - LEVEL / 2, half_width / error), nan=1)
    return Estimate(seeds.value, error, freedom)


def resampled(parts: ArrayLike) -> NDArray[Any]:
    """Bootstrap sums (`RESAMPLES`, ...) of N examples drawn with replacement from N, (N, ...). Every call draws the
    same examples, so that comparisons are paired (Koehn 2004, "Statistical significance tests for machine translation
    evaluation")."""
    given = np.asarray(parts, dtype=float)
    count, draw = len(given), np.random.default_rng(SEED)
    flat = given.reshape(count, -1)
    sums: list[NDArray[Any]] = []
    for left in range(RESAMPLES, 0, -(at_once := max(1, min(RESAMPLES, MOST_DRAWN // count)))):
        drawn = draw.choice(count, size=(min(at_once, left), count), replace=True)
        times = np.stack([np.bincount(row, minlength=count) for row in drawn])
        sums.append(times @ flat)
    return np.concatenate(sums).reshape(RESAMPLES, *given.shape[1:])


def over_examples(found: ArrayLike, drawn: ArrayLike, count: int) -> Estimate:
    """Estimate of a score over N = `count` examples.

    Args:
        found: score on all examples, (...).
        drawn: score on each resample, (B, ...).
    """
    return Estimate(found, np.asarray(drawn).std(0, ddof=1) * np.sqrt(count / (count - 1)), count - 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Corrects the p-values of several comparisons to control the family-wise error rate (Holm 1979)."""
    return [float(p) for p in _corrected(np.asarray(ps, dtype=float))]


def _corrected(ps: NDArray[np.float64]) -> NDArray[np.float64]:
    order = ps.argsort()
    corrected = np.empty_like(ps)
    corrected[order] = np.minimum(np.maximum.accumulate(ps[order] * np.arange(len(ps), 0, -1)), 1)
    return corrected


def seeds_needed(
    difference: float, spread: float, *, fixed: float = 0.0, samples: int = 1, level: float = LEVEL
) -> int | None:
    """Number of seeds per model needed to detect a difference with a power of 0.8; None if 1,000 are too few.

    Args:
        difference: true difference to detect.
        spread: standard deviation between seeds: of the differences if paired, else the root of the summed variances.
        fixed: standard error that more seeds do not reduce.
        samples: 1 if seeds are paired, else 2.
        level: significance level.
    """
    seeds = np.arange(2, MOST_SEEDS + 1)
    freedom = samples * (seeds - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = abs(difference) / np.sqrt(spread**2 / seeds + fixed**2)
    power = 1 - nctdtr(freedom, np.minimum(np.nan_to_num(shift), 30), stdtrit(freedom, 1 - level / 2))
    enough = seeds[power >= POWER]
    return int(enough[0]) if len(enough) else None


def examples_needed(found: Estimate, count: int, *, level: float = LEVEL) -> int | None:
    """Number of examples needed to detect the difference found on `count` examples, with a power of 0.8."""
    if not found.value:
        return None
    far = stdtrit(found.freedom, 1 - level / 2) + stdtrit(found.freedom, POWER)
    return int(np.ceil(count * np.square(far * found.error / found.value)))


def better(found: Estimate, level: float = LEVEL) -> NDArray[np.bool_]:
    """Pairs of K independent estimates that are told apart, (K, K): True at i, j if i is lower than j by Welch's test
    with Holm's correction over all pairs. An estimate with an unknown error (NaN) is not told apart from any."""
    value, error, freedom = (
        np.broadcast_to(part, np.shape(found.value)) for part in (found.value, found.error, found.freedom)
    )
    known = np.flatnonzero(np.isfinite(error))
    first, second = known[np.array(np.triu_indices(len(known), 1))]
    pairs = [Estimate(value[place], error[place], freedom[place]) for place in (first, second)]
    gap = unpaired(*pairs)
    certain = _corrected(gap.p) < level
    lower, higher = np.where(gap.value < 0, (first, second), (second, first))[:, certain]
    told = np.zeros((len(value), len(value)), dtype=bool)
    told[lower, higher] = True
    return told


def ranks(told: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Rank interval of each of K estimates, given the pairs told apart (`better`): from one more than the number of
    those certainly better, to K less the number of those certainly worse."""
    best, worst = 1 + told.sum(axis=0), len(told) - told.sum(axis=1)
    return [(int(low), int(high)) for low, high in zip(best, worst, strict=True)]


def letters(told: NDArray[np.bool_]) -> list[str]:
    """Compact letter display of K estimates (Piepho 2004): two share a letter if they are not told apart, and else not.
    Empty where the alphabet is too short."""
    if len(told) > len(ascii_letters):
        return []
    groups = [frozenset(range(len(told)))]
    for one, other in zip(*np.nonzero(told), strict=True):
        parts = [group - {place} for group in groups for place in ((one, other) if {one, other} <= group else (None,))]
        groups = [part for part in dict.fromkeys(parts) if not any(part < whole for whole in parts)]
        if len(groups) > len(ascii_letters):
            return []
    groups.sort(key=sorted)
    return ["".join(ascii_letters[n] for n, group in enumerate(groups) if k in group) for k in range(len(told))]
