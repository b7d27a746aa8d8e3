"""Rows of a comparison: the numbers of each model's runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from seqlab.comparison.examples import known_by_examples
from seqlab.comparison.seeds import by_seed, shared_name
from seqlab.comparison.statistics import Estimate, joined, mean
from seqlab.tracking.runs import TrackedRun

MORE_IS_BETTER = re.compile(r"acc|auc|bleu|chrf|exact|f1|mfu|per_s(?![a-z])|precision|recall")
SECONDS_A_DAY = 86400
BITS, NATS_PER_FRAME = "bits_per_char", "loss_per_frame"


@dataclass(frozen=True)
class Row:
    """A row of a comparison: a run, or the runs that differ only in their seeds, with mean values. None = unknown.

    Attributes:
        runs: runs of the row, best first.
        name: name of the run, or the common part of the runs' names.
        value: compared metric: the best value of a validation metric, as in the best checkpoint, else the last value.
        spread: mean over several seeds, with its error over seeds.
        of_examples: the same mean, with its error over test examples.
        values: that of each run with one, best first.
        bits_per_char: bits per character at the same step, on the split of the metric (`beside`).
        nats_per_frame: loss per frame of several labels, likewise.
        num_params: number of parameters.
        num_flops: training FLOPs per token at the training length.
        state_size: numbers that decoding stores per sequence, at the training length.
        tokens_per_s: measured training speed in tokens per second over all devices.
        days: days to train on the requested number of tokens at that speed.
        cost: cost of those days for all devices.
    """

    runs: tuple[TrackedRun, ...]
    name: str
    value: float | None
    values: tuple[float, ...]
    spread: Estimate | None
    of_examples: Estimate | None
    bits_per_char: float | None
    nats_per_frame: float | None
    num_params: int | None
    num_flops: float | None
    state_size: int | None
    tokens_per_s: float | None
    days: float | None = None
    cost: float | None = None

    @property
    def run(self) -> TrackedRun:
        """The only run, or the best run."""
        return self.runs[0]

    @property
    def half_width(self) -> float:
        """Half-width of the 95% interval over seeds and examples, as far as known; 0 if both are unknown."""
        return float(self.estimate.half_width) if self.estimate else 0.0

    @cached_property
    def estimate(self) -> Estimate | None:
        """Mean with its uncertainty over seeds and examples, as far as known; None if both are unknown."""
        known = [estimate for estimate in (self.spread, self.of_examples) if estimate is not None]
        return joined(*known) if len(known) == 2 else known[0] if known else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation between seeds."""
        return None if self.spread is None else float(self.spread.error * math.sqrt(len(self.runs)))


def rows_of(runs: Iterable[TrackedRun], metric: str, tokens: float | None, price: float | None) -> list[Row]:
    """Rows of the runs, best first; rows without the metric come last."""
    sign = -1 if more_is_better(metric) else 1
    rows = []
    for group in by_seed(runs):
        points = {run.id: best_point(run, metric) for run in group}
        known = [run for run in group if points[run.id][1] is not None]
        unknown = [(run,) for run in group if points[run.id][1] is None]
        best_first = sorted(known, key=lambda run: sign * (points[run.id][1] or 0))
        for some in ([tuple(best_first)] if known else []) + unknown:
            rows.append(_row(some, metric, [points[run.id] for run in some], tokens, price))
    return sorted(rows, key=lambda row: (row.value is None, sign * (row.value or 0)))


def more_is_better(metric: str) -> bool:
    """True if a higher value of the metric is better, judged by its name."""
    return MORE_IS_BETTER.search(metric.lower()) is not None


def short(number: float | None) -> str:
    """A number with four significant digits and a unit: 271360 becomes 271.4k."""
    if number is None or not math.isfinite(number):
        return "-"
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= 0.99995 * size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def _row(
    runs: tuple[TrackedRun, ...],
    metric: str,
    points: Sequence[tuple[int, float | None]],
    tokens: float | None,
    price: float | None,
) -> Row:
    run, values = runs[0], [value for _, value in points if value is not None]
    speed = _mean([run.metrics.get("perf/tokens_per_s") for run in runs])
    days = tokens / speed / SECONDS_A_DAY if tokens and speed and math.isfinite(speed) else None
    devices = run.metrics.get("num_devices", 1)
    return Row(
        runs,
        shared_name([run.name for run in runs]),
        _mean(values),
        tuple(values),
        mean(values) if len(values) > 1 else None,
        known_by_examples(runs, metric, values) if values else None,
        _at(points, runs, beside(metric, BITS)),
        _at(points, runs, beside(metric, NATS_PER_FRAME)),
        _count(run, "num_params"),
        run.metrics.get("num_flops"),
        _count(run, "state_size"),
        speed,
        days,
        days * 24 * price * devices if days is not None and price is not None else None,
    )


def best_point(run: TrackedRun, metric: str) -> tuple[int, float | None]:
    """Step and value used to compare a run: the best of a validation metric, the last of any other; (-1, None) if the
    run does not have the metric."""
    history = run.history(metric) if metric in run.metrics else []
    points = [(step, value) for step, value in history if math.isfinite(value)]
    if not points:
        return -1, None
    if metric.startswith("val/"):
        return (max if more_is_better(metric) else min)(points, key=lambda point: point[1])
    latest = run.metrics[metric]  # points of one step are sorted by value; this is the one written last
    return (points[-1][0], latest) if math.isfinite(latest) else (-1, None)


def beside(metric: str, name: str) -> str:
    """Metric of a name on the split of another metric, or in validation if that has none."""
    return f"{'test' if metric.startswith('test/') else 'val'}/{name}"


def _at(points: Sequence[tuple[int, float | None]], runs: Sequence[TrackedRun], metric: str) -> float | None:
    """Mean of a metric over runs, each at the step of its point."""
    return _mean(
        [
            dict(run.history(metric)).get(step, run.metrics[metric]) if metric in run.metrics else None
            for run, (step, _) in zip(runs, points, strict=True)
        ]
    )


def _count(run: TrackedRun, metric: str) -> int | None:
    return int(run.metrics[metric]) if math.isfinite(run.metrics.get(metric, math.nan)) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
