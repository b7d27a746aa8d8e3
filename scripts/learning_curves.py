"""Statistics of learning curves over seeds: where one model overtakes another, and a power law.

S seeds, P points of a curve.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from seqlab.comparison.statistics import difference

Losses = NDArray[np.float64]
"""Losses (S, P)."""
RESAMPLES, SEED = 1000, 0
FITTED_FROM = 0.1
"""Share of the tokens before which a curve is not fitted: the warm-up, and an average over few steps."""


class Crossing(NamedTuple):
    """Number of tokens at which a model overtakes another, with its 95% interval."""

    tokens: float
    low: float
    high: float


class PowerLaw(NamedTuple):
    """Loss a + b N^-c of N tokens, fitted to all points but the last; each with the 95% interval over seeds.

    Attributes:
        loss: a, the loss of endless training.
        exponent: c.
        predicted: loss at the last point.
        measured: mean loss at the last point.
    """

    loss: tuple[float, float, float]
    exponent: tuple[float, float, float]
    predicted: tuple[float, float, float]
    measured: float


def overtaking(tokens: NDArray[np.float64], ours: Losses, theirs: Losses) -> Crossing | None:
    """Point from which our model is better than theirs to the end; None if it was never certainly worse, or is not
    certainly better at the end.

    The interval has the points at which the means are not told apart (Welch's test), between the last at which theirs
    is certainly better and the first from which ours is: where the true curves cross, each test keeps its level. The
    point is where the means cross for the last time, by interpolation in the logarithm of the tokens.
    """
    gap = difference(ours.T, theirs.T, paired=False)
    sign = np.where(np.abs(gap.value) > gap.half_width, np.sign(gap.value), 0)
    if sign[-1] != -1 or not (worse := np.flatnonzero(sign == 1)).size:
        return None
    last_worse = int(worse[-1])
    first_better = int(np.flatnonzero(sign != -1)[-1]) + 1
    before = int(np.flatnonzero(gap.value > 0)[-1])
    share = gap.value[before] / (gap.value[before] - gap.value[before + 1])
    log = np.log(tokens)
    at = np.exp(log[before] + share * (log[before + 1] - log[before]))
    return Crossing(float(at), float(tokens[last_worse]), float(tokens[first_better]))


def power_law(tokens: NDArray[np.float64], losses: Losses) -> PowerLaw:
    """Fits the mean curve; the intervals are percentiles of fits to seeds drawn with replacement."""
    used = tokens >= FITTED_FROM * tokens[-1]
    used[-1] = False
    count, draw = len(losses), np.random.default_rng(SEED)
    drawn = Counter(tuple(sorted(row)) for row in draw.integers(count, size=(RESAMPLES, count)).tolist())
    fits = {seeds: _fit(tokens[used], losses[list(seeds)].mean(0)[used]) for seeds in drawn}
    resampled = np.array([fit for seeds, times in drawn.items() for fit in [fits[seeds]] * times])
    whole = _fit(tokens[used], losses.mean(0)[used])

    def interval(value: float, values: NDArray[np.float64]) -> tuple[float, float, float]:
        low, high = np.percentile(values, (2.5, 97.5))
        return float(value), float(low), float(high)

    growth = tokens[-1] / tokens[used][0]
    at_end = lambda fit: fit[0] + fit[1] * growth ** -fit[2]  # noqa: E731
    return PowerLaw(
        interval(whole[0], resampled[:, 0]),
        interval(whole[2], resampled[:, 2]),
        interval(at_end(whole), np.array([at_end(fit) for fit in resampled])),
        float(losses[:, -1].mean()),
    )


def _fit(tokens: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """a, b and c of a + b (N / N_0)^-c by least squares, with a at least 0, where N_0 is the first fitted point's."""
    scaled = tokens / tokens[0]
    start = [losses[-1] / 2, losses[0] - losses[-1] / 2, 0.3]
    found = least_squares(
        lambda p: p[0] + p[1] * scaled ** -p[2] - losses, start, bounds=([0, 0, 0], [losses[-1], np.inf, 5])
    )
    solution: NDArray[np.float64] = found.x
    return solution
