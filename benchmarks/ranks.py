"""Rules that tell models apart: false alarms among equal models, and pairs found if the leaderboard's means are true.

python benchmarks/ranks.py [EXPERIMENTS]        default 20,000; a minute

The 17 models have equal spreads, or those of docs/leaderboard.md's first table. A false alarm is an experiment in which
any pair is told apart though all means are equal; of 136 pairs the mean number told apart is given.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import studentized_range

from seqlab.comparison.sequential import FIRST_LOOK, decide
from seqlab.comparison.statistics import LEVEL, better, mean

PAGE = Path(__file__).parents[1] / "docs" / "leaderboard.md"
ROW = re.compile(r"^\| \S+ \| \S+ \| (?P<mean>[\d.]+) ± [\d.]+ \| (?P<sd>[\d.]+) \|", re.MULTILINE)
MODELS = 17
Rule = Callable[[NDArray[np.float64]], int]
"""Number of pairs told apart by values (MODELS, seeds)."""


def overlap(values: NDArray[np.float64]) -> int:
    """Pairs whose 95% intervals do not overlap."""
    found = mean(values)
    gap = np.abs(found.value[:, None] - found.value)
    return int((gap > found.half_width[:, None] + found.half_width).sum()) // 2


def tukey(values: NDArray[np.float64]) -> int:
    """Pairs by Tukey's range test, whose spread is pooled."""
    models, seeds = values.shape
    pooled = np.sqrt(values.var(axis=1, ddof=1).mean() / seeds)
    gap = np.abs(values.mean(axis=1)[:, None] - values.mean(axis=1))
    return int((gap > critical(models, seeds) * pooled).sum()) // 2


@cache
def critical(models: int, seeds: int) -> float:
    return float(studentized_range.ppf(1 - LEVEL, models, models * (seeds - 1)))


def welch(values: NDArray[np.float64]) -> int:
    return int(better(mean(values)).sum())


def until_decided(values: NDArray[np.float64]) -> int:
    models, most = values.shape
    return int(decide(lambda row, seeds: mean(values[row, :seeds]), [most] * models, most).told.sum())


RULES: dict[str, Rule] = {
    "intervals that do not overlap": overlap,
    "Tukey's range test, pooled": tukey,
    "Welch with Holm, as `compare`": welch,
    "`compare --until-decided`": until_decided,
}


def main() -> None:
    experiments = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rows = [*islice(ROW.finditer(PAGE.read_text(encoding="utf-8")), MODELS)]
    means, spreads = (np.array([float(row[name]) for row in rows])[:, None] for name in ("mean", "sd"))
    draw = np.random.default_rng(0)
    print("| rule | seeds | false alarms, equal spreads | false alarms, the page's spreads | pairs told apart |")
    print("|---|---|---|---|---|")
    for name, rule in RULES.items():
        sequential = rule is until_decided
        for seeds in (10,) if sequential else (3, 5):
            noise = (draw.normal(size=(MODELS, seeds)) for _ in count())
            equal = np.mean([rule(one) > 0 for one in islice(noise, experiments)])
            unequal = np.mean([rule(spreads * one) > 0 for one in islice(noise, experiments)])
            pairs = np.mean([rule(means + spreads * one) for one in islice(noise, experiments)])
            used = f"{FIRST_LOOK} to {seeds}" if sequential else seeds
            print(f"| {name} | {used} | {equal:.1%} | {unequal:.1%} | {pairs:.0f} |", flush=True)


if __name__ == "__main__":
    main()
