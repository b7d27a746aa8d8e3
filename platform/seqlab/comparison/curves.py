"""Learning curves of a comparison, as SVG."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from seqlab.comparison.drawing import drawn, line, look, mark
from seqlab.comparison.rows import short
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from seqlab.comparison.comparison import Comparison

MOST_MARKED, MOST_POINTS = 15, 1000


def learning_curves(comparison: Comparison, metric: str | None = None) -> str | None:
    """Plot of a metric over training tokens, or over steps if tokens are unknown; None if no run has the metric.

    Args:
        metric: metric to plot; None = the compared metric.
    """
    metric = metric or comparison.metric
    if not any(metric in run.metrics for run in comparison.runs):
        return None
    with drawn(metric) as drawing:
        axes = drawing.figure.subplots()
        by_tokens = all("num_tokens" in run.metrics for run in comparison.runs)
        for index, row in enumerate(comparison.rows):
            curves = [_curve(run, metric, by_tokens) for run in row.runs if metric in run.metrics]
            if curves := [curve for curve in curves if len(curve[0])]:
                x, low, middle, high = _band(curves)
                axes.plot(x, middle, markevery=max(1, len(x) // MOST_MARKED), **line(index))
                if len(curves) > 1:
                    axes.fill_between(x, low, high, color=look(index)["color"], alpha=0.22, linewidth=0)
        axes.set_xlabel("training tokens" if by_tokens else "optimiser steps")
        axes.set_ylabel(metric)
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
    return drawing.svg


def key(comparison: Comparison) -> str:
    """HTML of the rows' markers and names."""
    names = "".join(f"<span>{mark(index)}{escape(row.name)}</span> " for index, row in enumerate(comparison.rows))
    return f'<p class="key">{names}</p>'


def in_notebook(comparison: Comparison) -> str:
    """HTML of the table and of the learning curves, which a notebook shows in a page of its own style."""
    svg = learning_curves(comparison)
    figure = "" if svg is None else f'{key(comparison)}<div style="max-width: 32em">{svg}</div>'
    return f"{comparison.frame().to_html(index=False)}{figure}"


def _band(curves: list[tuple[Any, Any]]) -> tuple[Any, Any, Any, Any]:
    """Steps covered by all seeds, with minimum, mean and maximum of the values at each."""
    x = curves[0][0]
    x = x[(x >= max(of[0][0] for of in curves)) & (x <= min(of[0][-1] for of in curves))]
    values = np.stack([np.interp(x, *of) for of in curves])
    return x, values.min(0), values.mean(0), values.max(0)


def _curve(run: TrackedRun, metric: str, by_tokens: bool) -> tuple[Any, Any]:
    points = _finite(run, metric)
    steps, values = points[:, 0], points[:, 1]
    if by_tokens:
        tokens = _finite(run, "num_tokens")
        steps = np.interp(steps, np.append(-1, tokens[:, 0]), np.append(0, tokens[:, 1]))
    return _thinned(steps, values) if len(steps) > MOST_POINTS else (steps, values)


def _finite(run: TrackedRun, metric: str) -> Any:
    """Steps and finite values of a metric, (N, 2)."""
    return np.array([point for point in run.history(metric) if math.isfinite(point[1])]).reshape(-1, 2)


def _thinned(x: Any, y: Any) -> tuple[Any, Any]:
    """Downsamples to at most `MOST_POINTS` points by averaging neighbours."""
    size = -(-len(x) // MOST_POINTS)
    starts = np.arange(0, len(x), size)
    counts = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts
