"""The figures of a comparison, as SVG."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from seqlab.comparison.comparison import Comparison
from seqlab.comparison.rows import Row, more_is_better, short
from seqlab.tracking.runs import TrackedRun

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d")
"""Okabe and Ito's, which differ to colour-blind eyes too; the darkest come last."""
INK, GRID = "#1f2933", "#d9dee4"
LINES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
MOST_NAMES, MOST_MARKED, MOST_POINTS, NAME_LENGTH = 12, 50, 1000, 28
SIZE = (5.6, 3.9)
"""Inches."""
STYLE: Any = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": INK,
    "xtick.color": "#52606d",
    "ytick.color": "#52606d",
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "text.parse_math": False,  # a run's name is not a formula
}


def learning_curves(comparison: Comparison, metric: str | None = None) -> str | None:
    """A metric over the tokens seen (or steps where they are unknown); None where no run has it.

    Args:
        metric: None = the one that is compared.
    """
    metric = metric or comparison.metric
    if not any(metric in run.metrics for run in comparison.runs):
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        by_tokens = all("num_tokens" in run.metrics for run in comparison.runs)
        for index, row in enumerate(comparison.rows):
            curves = [_curve(run, metric, by_tokens) for run in row.runs if metric in run.metrics]
            if curves := [curve for curve in curves if len(curve[0])]:
                x, low, middle, high = _band(curves)
                style = _style(index) | ({"marker": "o", "markersize": 3.5} if len(x) <= MOST_MARKED else {})
                axes.plot(x, middle, linewidth=1.6, label=f"{comparison.ranks[index]}  {_short_name(row)}", **style)
                if len(curves) > 1:
                    axes.fill_between(x, low, high, color=style["color"], alpha=0.22, linewidth=0)
        axes.set_xlabel("training tokens" if by_tokens else "optimiser steps")
        axes.set_ylabel(metric)
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
        if len(comparison.rows) <= MOST_NAMES:
            axes.legend(frameon=False, loc="best", handlelength=3)
        return _svg(figure, metric)


def quality_against_cost(comparison: Comparison) -> str | None:
    """The metric over what training costs, with the runs that no other one beats in both; None without speeds."""
    points = [(_cost(comparison, row), row.value, index) for index, row in enumerate(comparison.rows)]
    known = [(cost, value, index) for cost, value, index in points if cost is not None and value is not None]
    if not known:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        more = more_is_better(comparison.metric)
        frontier = _frontier([point[:2] for point in known], more)
        axes.plot(*zip(*frontier, strict=True), color="#9aa5b1", linewidth=1, linestyle="--", zorder=1)
        middle = (min(known)[0] + max(known)[0]) / 2
        for cost, value, index in known:
            axes.scatter([cost], [value], s=52, color=COLOURS[index % len(COLOURS)], zorder=2)
            text = _short_name(comparison.rows[index]) if len(known) <= MOST_NAMES else str(index + 1)
            right = cost > middle
            offset = (-8 if right else 8, -14 if right != more else 6)  # beside the dashed line, not on it
            align = "right" if right else "left"
            axes.annotate(text, (cost, value), xytext=offset, textcoords="offset points", ha=align)
        axes.margins(x=0.12, y=0.18)
        axes.set_xlabel(_cost_label(comparison))
        axes.set_ylabel(comparison.metric)
        return _svg(figure, "cost")


def _band(curves: list[tuple[Any, Any]]) -> tuple[Any, Any, Any, Any]:
    """Where all seeds have been, the least, the mean and the greatest of them."""
    x = curves[0][0]
    x = x[(x >= max(of[0][0] for of in curves)) & (x <= min(of[0][-1] for of in curves))]
    values = np.stack([np.interp(x, *of) for of in curves])
    return x, values.min(0), values.mean(0), values.max(0)


def _style(index: int) -> Any:
    """Of a row's lines, which differ in grey too."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": LINES[index % len(LINES)]}


def _curve(run: TrackedRun, metric: str, by_tokens: bool) -> tuple[Any, Any]:
    points = np.array([point for point in run.history(metric) if math.isfinite(point[1])]).reshape(-1, 2)
    steps, values = points[:, 0], points[:, 1]
    if by_tokens:
        tokens = np.array(run.history("num_tokens"))
        steps = np.interp(steps, np.append(-1, tokens[:, 0]), np.append(0, tokens[:, 1]))
    return _thinned(steps, values) if len(steps) > MOST_POINTS else (steps, values)


def _cost(comparison: Comparison, row: Row) -> float | None:
    if comparison.price is not None:
        return row.cost
    if comparison.tokens is not None:
        return row.days
    return 1e6 / row.tokens_per_s if row.tokens_per_s else None


def _cost_label(comparison: Comparison) -> str:
    if comparison.tokens is None:
        return "seconds of training per million tokens"
    if comparison.price is None:
        return f"days for {short(comparison.tokens)} tokens"
    return f"cost of {short(comparison.tokens)} tokens, at {comparison.price:g} per device and hour"


def _frontier(points: list[tuple[float, float]], more: bool) -> list[tuple[float, float]]:
    """The points that no other one beats in cost and in quality, by cost."""
    best: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda point: (point[0], -point[1] if more else point[1])):
        if not best or (value > best[-1][1] if more else value < best[-1][1]):
            best.append((cost, value))
    return best


def _thinned(x: Any, y: Any) -> tuple[Any, Any]:
    """At most `MOST_POINTS` points, each the mean of its neighbours."""
    size = -(-len(x) // MOST_POINTS)
    starts = np.arange(0, len(x), size)
    counts = np.diff(np.append(starts, len(x)))
    return np.add.reduceat(x, starts) / counts, np.add.reduceat(y, starts) / counts


def _short_name(row: Row) -> str:
    return row.name if len(row.name) <= NAME_LENGTH else f"{row.name[: NAME_LENGTH - 1]}…"


def _svg(figure: Figure, salt: str) -> str:
    """The figure as an element to put into a page; the same figure always gives the same text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's font may have it
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    return text[text.index("<svg") :]
