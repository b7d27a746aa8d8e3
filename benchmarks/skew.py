"""Student's t on a few seeds of skewed numbers: coverage of a mean's interval, and false differences between two models
of equal means, by Welch's test and by a permutation test of its statistic.

python benchmarks/skew.py        half a minute
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from seqlab.comparison.statistics import LEVEL, difference, mean

EXPERIMENTS, PERMUTED = 20_000, 2_000
SKEWED = {"exponential": stats.expon, "log-normal": stats.lognorm(1)}
RATIOS = (1, 3, 10)
"""Ratios of the models' spreads."""


def permuted(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values by all permutations."""
    exact = stats.PermutationMethod(n_resamples=np.inf)
    return np.asarray(stats.ttest_ind(ours, theirs, axis=1, equal_var=False, method=exact).pvalue)


def main() -> None:
    draw = np.random.default_rng(0)
    titles = [f"{test}, spreads 1 to {ratio}" for test in ("Welch", "permutation") for ratio in RATIOS]
    print("| numbers | seeds | coverage |", " | ".join(titles), "|")
    print("|" + "---|" * (3 + len(titles)))
    for name, skewed in SKEWED.items():
        for seeds in (3, 5, 10):
            shape = (EXPERIMENTS, seeds)
            ours, theirs = (skewed.rvs(size=shape, random_state=draw) - skewed.mean() for _ in range(2))
            found = [np.mean(difference(ours, theirs / ratio, paired=False).p < LEVEL) for ratio in RATIOS]
            some = slice(PERMUTED if seeds == 5 else 0)  # 3 seeds have 20 permutations, 10 have 184,756
            found += [np.mean(permuted(ours[some], theirs[some] / ratio) < LEVEL) for ratio in RATIOS if some.stop]
            covered = np.mean(np.abs(mean(ours).value) <= mean(ours).half_width)
            cells = [f"{share:.1%}" for share in (covered, *found)]
            print("|", " | ".join([name, str(seeds), *cells, *[""] * (1 + len(titles) - len(cells))]), "|", flush=True)


if __name__ == "__main__":
    main()
