"""SVG plots of scores by position or by length: a line for each row, and a surface for a model that was trained at
several lengths."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from seqlab.comparison.comparison import Comparison
from seqlab.comparison.drawing import INK, drawn, line
from seqlab.comparison.rows import Row, more_is_better
from seqlab.comparison.seeds import shared_name

MOST_NAMES = 12
"""Maximum number of bucket labels on an axis."""
SCORE = re.compile(r"(test|val)/(\w+_by_(length|position))/(.+)")


class ByLength(NamedTuple):
    """Scores of one name, such as loss_by_position.

    Attributes:
        metric: full metric name; its split is test if any row has it, else val.
        axis: "length" or "position".
        buckets: buckets of all rows, such as 9-16, shortest first.
        values: mean over seeds by bucket, for each row.
        trained: longest validation bucket of each row, taken as its training length; None = unknown.
    """

    metric: str
    axis: str
    buckets: list[str]
    values: list[dict[str, float]]
    trained: list[str | None]

    def beyond(self, row: int) -> list[bool]:
        """True for each bucket that is longer than the row's training length."""
        trained = self.trained[row]
        return [trained is not None and _least(bucket) > _greatest(trained) for bucket in self.buckets]


def by_length(comparison: Comparison) -> list[ByLength]:
    """Scores by length or position of a comparison's runs, sorted by name."""
    found = {name: match for run in comparison.runs for name in run.metrics if (match := SCORE.fullmatch(name))}
    splits = {match[2]: match[1] for match in sorted(found.values(), key=lambda match: match[1], reverse=True)}
    result = []
    for name, axis in sorted({match[2]: match[3] for match in found.values()}.items()):
        metric = f"{splits[name]}/{name}"
        values = [_values(row, metric) for row in comparison.rows]
        trained = [max(_values(row, f"val/{name}"), key=_least, default=None) for row in comparison.rows]
        buckets = sorted({bucket for row in values for bucket in row}, key=_least)
        result.append(ByLength(metric, axis, buckets, values, trained))
    return result


def length_curves(of: ByLength) -> str:
    """Plot with one line per row, whose markers are hollow beyond the training length."""
    with drawn(of.metric) as drawing:
        axes = drawing.figure.subplots()
        places = np.arange(len(of.buckets))
        for index, row in enumerate(of.values):
            y, look, beyond = [row.get(bucket, math.nan) for bucket in of.buckets], line(index), of.beyond(index)
            axes.plot(places, y, **look, markevery=[k for k in places if not beyond[k]])
            hollow = look | {"linestyle": "none", "markerfacecolor": "white"}
            axes.plot(places, y, **hollow, markevery=[k for k in places if beyond[k]])
        _name_some(axes, of.buckets, 0)
        axes.set_xlabel(f"{of.axis} in tokens")
        axes.set_ylabel(of.metric)
    return drawing.svg


def length_surfaces(comparison: Comparison, of: ByLength) -> dict[str, str]:
    """Heat maps by name, for models trained at several lengths: the score by training length and bucket, darker is
    better."""
    models: dict[frozenset[tuple[str, str]], dict[str, int]] = {}
    for index, row in enumerate(comparison.rows):
        if (trained := of.trained[index]) is not None and of.values[index]:
            model = frozenset((name, value) for name, value in row.run.params.items() if name.startswith("model."))
            models.setdefault(model, {}).setdefault(trained, index)  # the best of several rows
    chosen = [sorted(of_model.values(), key=lambda index: _least(of.trained[index])) for of_model in models.values()]
    names = {tuple(rows): shared_name([comparison.rows[index].name for index in rows]) for rows in chosen}
    return {name: _surface(of, rows, name) for rows, name in names.items() if len(rows) > 1}


def _surface(of: ByLength, rows: Sequence[int], name: str) -> str:
    values = np.array([[of.values[index].get(bucket, math.nan) for bucket in of.buckets] for index in rows])
    low, high = np.nanmin(values), np.nanmax(values)
    light = (values - low) / (high - low or 1)
    light = 0.9 * (1 - light if more_is_better(of.metric) else light)
    with drawn(f"{of.metric} {name}", 0.62 * len(of.buckets) + 1.2, 0.42 * len(rows) + 1.1) as drawing:
        axes = drawing.figure.subplots()
        axes.pcolormesh(light, cmap="cividis", vmin=0, vmax=1)
        for y, x in np.argwhere(np.isfinite(values)):
            ink = "w" if light[y, x] < 0.5 else INK
            axes.text(x + 0.5, y + 0.5, f"{values[y, x]:.3g}", ha="center", va="center", fontsize=8, color=ink)
        ends = [of.beyond(index).index(True) if any(of.beyond(index)) else math.nan for index in rows]
        axes.vlines(ends, range(len(rows)), range(1, len(rows) + 1), color="w", linewidth=3)
        _name_some(axes, of.buckets, 0.5)
        axes.set_yticks(np.arange(len(rows)) + 0.5, [str(of.trained[index]) for index in rows], fontsize=8)
        axes.set(xlabel=f"{of.axis} in tokens", ylabel="trained up to")
        axes.grid(False)
    return drawing.svg


def _values(row: Row, metric: str) -> dict[str, float]:
    """Means over the seeds of a row, by bucket."""
    said: dict[str, list[float]] = {}
    for run in row.runs:
        for name, value in run.metrics.items():
            family, _, bucket = name.rpartition("/")
            if family == metric and math.isfinite(value):
                said.setdefault(bucket, []).append(value)
    return {bucket: fmean(values) for bucket, values in said.items()}


def _least(bucket: str | None) -> int:
    """Smallest length of a bucket: 9 for 9-16 and for 9, 1025 for over 1024."""
    numbers = re.findall(r"\d+", bucket or "")
    return int(numbers[0]) + (bucket or "").startswith("over") if numbers else 0


def _greatest(bucket: str) -> float:
    """Largest length of a bucket: 16 for 9-16, 9 for 9, infinite for over 1024."""
    return math.inf if bucket.startswith("over") else int(bucket.rpartition("-")[2])


def _name_some(axes: Any, buckets: Sequence[str], shift: float) -> None:
    """Labels as many buckets on the axis as fit."""
    every = math.ceil(len(buckets) / MOST_NAMES)
    axes.set_xticks(np.arange(0, len(buckets), every) + shift, buckets[::every], fontsize=8)
