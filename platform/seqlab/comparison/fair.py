"""Warnings about factors other than the models that may explain differences between rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from seqlab.comparison.rows import Row, short
from seqlab.comparison.seeds import LR, Config, config_of, seed_of
from seqlab.tracking.params import CLASS, read_by
from seqlab.tracking.runs import TrackedRun
from seqlab.tracking.writes import DATASET_TAG, EVALUATED_TAG, SCORED_TAG

OF_BYTES = "bits_per_byte"
TOKENIZER = re.compile(r"data\..*tokenizer")
ALIKE = {"Parameters": ("num_params", 1.05), "Tokens read": ("num_tokens", 1.01)}
"""Metrics, and the ratio up to which two runs are considered equal."""
INTERVALS = {
    (False, False): "From one seed, without an interval",
    (False, True): "From one seed, with the interval over other test examples",
    (True, True): "With the interval over other seeds and other test examples",
}
"""Description of an interval, by whether a row has several seeds and whether it has test predictions."""


def unfair(rows: Sequence[Row], metric: str, searched: Sequence[TrackedRun]) -> list[str]:
    """One sentence for each factor that changes the metric or its cost in some rows.

    Args:
        searched: all runs from which the rows were chosen.
    """
    found = [sentence for what in ALIKE if (sentence := _unequal(what, rows))]
    timed = [run for row in rows for run in row.runs if "perf/tokens_per_s" in run.metrics]
    machines = sorted({_machine(run) for run in timed} - {""})
    if len(machines) > 1:
        found.append(f"Speeds were measured on different machines: {'; '.join(machines)}.")
    tasks = {task: row.name for row in reversed(rows) if (task := task_of(row.run))}
    if len(tasks) > 1:
        found.append(f"Trained by different tasks: {'; '.join(f'{tasks[task]} by {task}' for task in sorted(tasks))}.")
    tokenizers = {text: row.name for row in reversed(rows) if (text := tokenizer_of(row.run))}
    if len(tokenizers) > 1:
        texts = "; ".join(f"{tokenizer} in {name}" for tokenizer, name in sorted(tokenizers.items()))
        found.append(f"Tokenizers differ: {texts}.")
        if metric.endswith(OF_BYTES):
            found.append(f"Tokens differ between them and bytes do not: ranked by {metric}.")
    return [
        *found,
        *_read_differently(rows),
        *_on_other_data(rows, metric),
        *_rates_tried(rows, searched),
        *_left_out(rows, metric, searched),
        *_intervals(rows),
    ]


def task_of(run: TrackedRun) -> str:
    """Class name of a run's task; empty if its config does not name one."""
    return run.params.get("model.class_path", "").rpartition(".")[2]


def kind_of(run: TrackedRun) -> tuple[str, str]:
    """Task by which a run is scored, and its data with digest."""
    return run.tags.get(SCORED_TAG, task_of(run)), run.tags.get(DATASET_TAG, "")


def tokenizer_of(run: TrackedRun) -> str:
    """Class names and options of a run's tokenizers; empty if its config does not name any."""
    named = dict(sorted(item for item in run.params.items() if TOKENIZER.match(item[0])))
    classes = [value.rpartition(".")[2] for name, value in named.items() if name.endswith(CLASS)]
    options = [f"{name.rpartition('.')[2]} {value}" for name, value in named.items() if not name.endswith(CLASS)]
    return ", ".join([*classes, *options])


def _unequal(what: str, rows: Sequence[Row]) -> str | None:
    metric, times = ALIKE[what]
    known = ((run.metrics.get(metric, 0), row.name) for row in rows for run in row.runs)
    sizes = sorted((size, name) for size, name in known if size and math.isfinite(size))
    if not sizes or sizes[-1][0] <= times * sizes[0][0]:
        return None
    (least, smallest), (most, largest) = sizes[0], sizes[-1]
    share = f"{most / least - 1:.0%}"
    return f"{what} differ by {share}: {short(least)} in {smallest}, {short(most)} in {largest}."


def _read_differently(rows: Sequence[Row]) -> list[str]:
    """Warns if rows read different parts of the same data, or split it differently."""
    values: dict[str, dict[str, str]] = {}
    for row in reversed(rows):
        for name, value in read_by(row.run.params).items():
            values.setdefault(name, {})[value] = row.name
    texts = [
        f"{name} " + ", ".join(f"{value} in {of[value]}" for value in sorted(of))
        for name, of in sorted(values.items())
        if len(of) > 1
    ]
    return [f"The data are read differently: {'; '.join(texts)}."] if texts else []


def _on_other_data(rows: Sequence[Row], metric: str) -> list[str]:
    """Warns about runs whose scores come from other data, as with `seqlab test RUN --data.path OTHER`."""
    tag = EVALUATED_TAG.format(metric.partition("/")[0])
    own = [(run, run.tags.get(DATASET_TAG)) for row in rows for run in row.runs]
    found = [f"{run.name} on {run.tags[tag]}" for run, data in own if run.tags.get(tag, data) != data]
    return [f"Evaluated on other data than its own: {', '.join(found)}."] if found else []


def _left_out(rows: Sequence[Row], metric: str, searched: Sequence[TrackedRun]) -> list[str]:
    """Warns about seeds missing from a row because their runs failed; the mean covers only the others."""
    lost: dict[Config, list[TrackedRun]] = {}
    for run in searched:
        if not _counts(run, metric):
            lost.setdefault(config_of(run), []).append(run)
    found = []
    for row in rows:
        seeds = {seed_of(run) for run in row.runs}
        others = [run for run in lost.get(config_of(row.run), []) if seed_of(run) not in seeds]
        if others and _counts(row.run, metric):
            names = ", ".join(f"{run.name} ({run.status})" for run in others)
            found.append(f"Not among the seeds of {row.name}: {names}.")
    return found


def _counts(run: TrackedRun, metric: str) -> bool:
    return run.status == "FINISHED" and math.isfinite(run.metrics.get(metric, math.nan))


def _rates_tried(rows: Sequence[Row], searched: Sequence[TrackedRun]) -> list[str]:
    """Warns if more learning rates were tried for some models than for others."""
    names = {config_of(row.run, LR): row.name for row in reversed(rows) if LR in row.run.params}
    tried: dict[Config, set[str]] = {config: set() for config in names}
    for run in searched:
        if LR in run.params and (config := config_of(run, LR)) in tried:
            tried[config].add(run.params[LR])
    by_count: dict[int, list[str]] = {}
    for config, rates in tried.items():
        by_count.setdefault(len(rates), []).insert(0, names[config])
    texts = [f"{count} of {', '.join(by_count[count])}" for count in sorted(by_count, reverse=True)]
    return [f"Learning rates tried differ: {'; '.join(texts)}."] if len(texts) > 1 else []


def _intervals(rows: Sequence[Row]) -> list[str]:
    """Sources of the rows' intervals; empty if no row has an interval."""
    names: dict[tuple[bool, bool], list[str]] = {}
    for row in rows:
        if row.value is not None:
            names.setdefault((row.spread is not None, row.of_examples is not None), []).append(row.name)
    if len(names) == 1 and (False, False) in names:
        return []
    return [f"{text}: {', '.join(names[kind])}." for kind, text in INTERVALS.items() if kind in names]


def _machine(run: TrackedRun) -> str:
    names = ("hardware.cpu", "hardware.gpus") if run.tags.get("hardware.gpus", "none") != "none" else ("hardware.cpu",)
    hardware = ", ".join(run.tags[name] for name in names if name in run.tags)
    return f"{run.tags['host']} ({hardware})" if "host" in run.tags else hardware
