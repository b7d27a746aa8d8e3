"""Grouping of runs that differ only in their seeds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from seqlab.tracking.params import RUN_SPECIFIC
from seqlab.tracking.runs import TrackedRun, find_run, listed
from seqlab.tracking.store import Store
from seqlab.tracking.writes import CHANGED_TAG, DATASET_TAG

SEED = "seed_everything"
SEEDS = (SEED, "data.init_args.seed")
"""Seeds of weights and dropout, and of the batch order. If the latter also seeds the examples, their digest differs."""
LR = "model.init_args.lr"
SEED_AT_END = re.compile(r"(?<=.)(?:[-_. ]+(?:seed|s)?[-_=]?)?\d+$")

Config = frozenset[tuple[str, str]]


def by_seed(runs: Iterable[TrackedRun]) -> list[tuple[TrackedRun, ...]]:
    """Groups finished runs of one config by seed; any other run is a group by itself. A repeated seed starts another
    group, because repeating the same fit says nothing about variance over seeds."""
    groups: dict[tuple[Config, int] | str, list[TrackedRun]] = {}
    times: Counter[tuple[Config, str]] = Counter()
    for run in runs:
        key: tuple[Config, int] | str = run.id
        if run.status == "FINISHED" and SEED in run.params:
            config, seed = config_of(run), seed_of(run)
            key = config, times[config, seed]
            times[config, seed] += 1
        groups.setdefault(key, []).append(run)
    return [tuple(group) for group in groups.values()]


def seed_of(run: TrackedRun) -> str:
    """Seeds of a run; empty if unknown."""
    return ", ".join(run.params[name] for name in SEEDS if name in run.params)


def options_of(run: TrackedRun, *but: str) -> dict[str, str]:
    """Parameters of a run, without run-specific ones, seeds, and the names in `but`."""
    left_out = {*RUN_SPECIFIC, *SEEDS, *but}
    return {
        name: value
        for name, value in run.params.items()
        if name not in left_out and name.partition(".")[0] not in left_out
    }


def config_of(run: TrackedRun, *but: str) -> Config:
    """Data and `options_of` of a run."""
    tags = {tag: run.tags.get(tag, "") for tag in (CHANGED_TAG, DATASET_TAG)}
    return frozenset((options_of(run, *but) | tags).items())


def shared_name(names: Sequence[str]) -> str:
    """Common name of runs with several seeds, without the number at the end: gru for gru-s0, gru-s1 and gru-s2. If the
    names differ otherwise, the first name."""
    stems = {SEED_AT_END.sub("", name) for name in names}
    return stems.pop() if len(stems) == 1 < len(set(names)) else names[0]


def runs_named(
    text: str, runs: Sequence[TrackedRun], store: Store, experiment: str | None = None
) -> tuple[TrackedRun, ...]:
    """Finds the runs of a row by its name, or several runs by comma-separated ids or names.

    Args:
        runs: all known runs.
        experiment: experiment of the runs; None = any.

    Raises:
        ValueError: a run does not exist, or a name matches several rows or runs; the message lists them.
    """
    rows = [group for group in by_seed(runs) if len(group) > 1 and shared_name([run.name for run in group]) == text]
    if rows:
        named = {run.id: run for run in (*chain(*rows), *(run for run in runs if run.name == text))}
        if len(named) > len(rows[0]):
            raise ValueError(
                f"{text!r} names more than one row: {listed([*named.values()])}; give ids, separated by commas"
            )
        return rows[0]
    several = "," in text and text not in {run.name for run in runs}
    return tuple(find_run(one, store, experiment) for one in (text.split(",") if several else [text]))
