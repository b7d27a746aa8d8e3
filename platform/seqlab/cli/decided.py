"""`seqlab compare --until-decided`: comparison that fits further seeds of rows whose order is open."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqlab.comparison.comparison import Comparison
    from seqlab.comparison.rows import Row
    from seqlab.comparison.statistics import Estimate
    from seqlab.sweeps.several import Job

FEWEST = 3
"""Lower limit of `--max-seeds`."""


def compare_until_decided(comparison: Comparison, most: int, at_once: int, trust: Sequence[str]) -> Comparison:
    """Adds seeds to a comparison until each pair of rows is told apart or has `most` seeds. Its cost is told on stderr.

    Args:
        at_once: number of concurrent fits.

    Raises:
        ValueError: `most` is out of range, or a run is unfinished, has no metric, or cannot be fitted with a new seed.
        StoppedError: a signal was received; the same command continues.
    """
    from seqlab.comparison.comparison import compare
    from seqlab.comparison.sequential import decide
    from seqlab.comparison.statistics import MOST_SEEDS

    if not FEWEST <= most <= MOST_SEEDS or at_once < 1:
        raise ValueError(
            f"--max-seeds {most} --jobs {at_once}: accepted: {FEWEST} to {MOST_SEEDS} seeds, and at least one job"
        )
    started, added = time.monotonic(), 0
    while True:
        rows = comparison.rows
        _check(rows, comparison.metric)
        decision = decide(_means(rows, comparison.metric), [len(row.runs) for row in rows], most)
        if not decision.wanting:
            break
        names = ", ".join(f"{rows[place].name} to {seeds}" for place, seeds in decision.wanting.items())
        print(f"adding seeds: {names}", file=sys.stderr, flush=True)
        new = _add(rows, decision.wanting, comparison.metric, at_once, trust)
        added += len(new)
        ids = [run.id for run in comparison.runs] + new
        comparison = compare(ids, metric=comparison.metric, tokens=comparison.tokens, price=comparison.price)
    pairs, minutes = len(rows) * (len(rows) - 1) // 2, (time.monotonic() - started) / 60
    print(
        f"{int(decision.told.sum())} of {pairs} pairs of rows are told apart, with up to {decision.seeds} seeds each; "
        f"{added} fits were added in {minutes:.1f} minutes",
        file=sys.stderr,
    )
    return replace(comparison, decided=decision.told)


def _check(rows: Sequence[Row], metric: str) -> None:
    for row in rows:
        if row.value is None or row.run.status != "FINISHED":
            lacks = f"has no {metric}" if row.value is None else f"is {row.run.status}"
            raise ValueError(f"--until-decided: {row.run.name} ({row.run.id[:8]}) {lacks}; name rows of finished runs")
    if len(rows) < 2:
        raise ValueError("--until-decided needs at least two rows to tell apart")


def _add(rows: Sequence[Row], wanting: Mapping[int, int], metric: str, at_once: int, trust: Sequence[str]) -> list[str]:
    """Fits the missing seeds, and returns the ids of their runs."""
    from seqlab.sweeps.several import fit_all

    jobs: dict[str, list[Job]] = {}
    for place, seeds in wanting.items():
        jobs.setdefault(rows[place].run.experiment, []).extend(_jobs(rows[place], seeds - len(rows[place].runs), trust))
    added = []
    for experiment, some in jobs.items():
        finished = fit_all(some, experiment, at_once)
        for job in some:
            if job.name not in finished:
                raise ValueError(f"--until-decided: {job.name} could not be fitted; the other runs are kept")
            if metric not in finished[job.name].metrics:
                _test(finished[job.name].id, trust)
            added.append(finished[job.name].id)
    return added


def _jobs(row: Row, number: int, trust: Sequence[str]) -> list[Job]:
    """Fits of a row with new seeds: of the weights, and of the data if that differs among the row's runs."""
    from seqlab.comparison.seeds import SEED, SEEDS, config_of
    from seqlab.sweeps.another_seed import another_seed
    from seqlab.tracking.runs import search

    seen = {name: {run.params.get(name) for run in row.runs} for name in SEEDS}
    varied = [name for name in SEEDS if name == SEED or len(seen[name]) > 1]
    used = set().union(*(seen[name] for name in varied))
    seeds = [seed for seed in range(len(used) + number) if str(seed) not in used][:number]
    options = [name.replace("init_args.", "") for name in varied]
    there = {run.name: config_of(run) for run in search(row.run.store, experiment=row.run.experiment)}
    names = [f"{row.name}-s{seed}" for seed in seeds]
    if taken := [name for name in names if there.get(name, config_of(row.run)) != config_of(row.run)]:
        raise ValueError(f"--until-decided: {taken[0]} would be a seed of {row.name}, but is a run with another config")
    return [another_seed(row.run, name, seed, options, trust=trust) for name, seed in zip(names, seeds, strict=True)]


def _test(run: str, trust: Sequence[str]) -> None:
    from seqlab.cli.fit import evaluate

    with redirect_stdout(sys.stderr):
        if evaluate(argparse.Namespace(verb="test", target=run, trust=[*trust], overrides=[])) != 0:
            raise ValueError(f"--until-decided: run {run[:8]} could not be tested")


def _means(rows: Sequence[Row], metric: str) -> Callable[[int, int], Estimate]:
    """Mean of a row over its first seeds, in the order in which the runs started; lower is better."""
    from seqlab.comparison.rows import more_is_better, rows_of

    sign = -1 if more_is_better(metric) else 1

    def mean(place: int, seeds: int) -> Estimate:
        runs = sorted(rows[place].runs, key=lambda run: run.started)[:seeds]
        (row,) = rows_of(runs, metric, None, None)
        assert row.estimate is not None
        return replace(row.estimate, value=sign * row.estimate.value)

    return mean
