"""Quality against cost: SVG plots of the compared metric against each cost, with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from seqlab.comparison.comparison import Comparison
from seqlab.comparison.drawing import FAINT, INK, by_logarithm, drawn, look
from seqlab.comparison.rows import Row, more_is_better, short

FLOAT32 = 4
"""Bytes per number."""


class CostAxis(NamedTuple):
    """A cost of a row; None where it is unknown.

    Attributes:
        title: title with unit.
        of: the cost of a row.
        more: whether a higher value is better.
    """

    title: str
    of: Callable[[Row], float | None]
    more: bool = False


def costs(comparison: Comparison) -> tuple[CostAxis, ...]:
    """Costs to plot. The last is the training time or, if requested, the projected days or their price."""
    time = CostAxis("seconds of training", _seconds)
    if comparison.tokens is not None:
        tokens = f"{short(comparison.tokens)} tokens"
        time = CostAxis(f"days for {tokens}", lambda row: row.days)
        if comparison.price is not None:
            time = CostAxis(f"cost of {tokens} at {comparison.price:g}/h", lambda row: row.cost)
    return (
        CostAxis("parameters", lambda row: row.num_params),
        CostAxis("FLOPs of training a token", lambda row: row.num_flops),
        CostAxis("bytes of state, float32", lambda row: None if row.state_size is None else FLOAT32 * row.state_size),
        CostAxis("tokens/s in training", lambda row: row.tokens_per_s, more=True),
        time,
    )


def quality_against_costs(comparison: Comparison) -> list[str]:
    """One figure per cost that is known for at least one row with the metric."""
    return [svg for cost in costs(comparison) if (svg := _against(comparison, cost)) is not None]


def front(points: Sequence[tuple[float, float]], *, more_cost: bool = False, more_value: bool = False) -> list[int]:
    """Indices of the (cost, value) points on the Pareto front, sorted by cost. Points that are not finite are left out.

    Args:
        more_cost: a higher cost is better, as for a speed.
        more_value: a higher value is better.
    """
    signs = (-1 if more_cost else 1, -1 if more_value else 1)
    signed = {
        i: (signs[0] * x, signs[1] * y) for i, (x, y) in enumerate(points) if math.isfinite(x) and math.isfinite(y)
    }
    beaten = {
        i for i, (x, y) in signed.items() if any(u <= x and v <= y and (u, v) != (x, y) for u, v in signed.values())
    }
    return sorted(signed.keys() - beaten, key=lambda i: points[i])


def _against(comparison: Comparison, cost: CostAxis) -> str | None:
    known = [
        (x, row.value, index)
        for index, row in enumerate(comparison.rows)
        if (x := cost.of(row)) is not None and math.isfinite(x) and row.value is not None
    ]
    if not known:
        return None
    more = more_is_better(comparison.metric)
    best = [known[i] for i in front([point[:2] for point in known], more_cost=cost.more, more_value=more)]
    with drawn(cost.title, 3.4, 2.9) as drawing:
        axes = drawing.figure.subplots()
        if by_logarithm([x for x, _, _ in known]):
            axes.set_xscale("log")
            axes.minorticks_off()
        else:
            axes.locator_params(axis="x", nbins=5)
        axes.margins(x=0.15, y=0.2)
        xs, values, _ = zip(*best, strict=True)
        steps = "steps-pre" if cost.more else "steps-post"  # best value available at each cost
        ring: Any = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "markeredgecolor": INK}
        axes.plot(xs, values, color=FAINT, linewidth=1, linestyle="--", drawstyle=steps, zorder=1, **ring)
        for x, value, index in known:
            point = {"markersize": 7} | look(index)
            if len(values := comparison.rows[index].values) > 1:
                seeds: Any = {"color": look(index)["color"], "markerfacecolor": "white", "markersize": 4, "zorder": 3}
                axes.plot([x] * len(values), values, "o", **seeds)
            if width := comparison.rows[index].half_width:
                axes.errorbar([x], [value], [width], capsize=3, elinewidth=1, **point)
            else:  # the same point, above the lines of the others' intervals, in half the time
                axes.plot([x], [value], zorder=2.1, **point)
        axes.set_xlabel(cost.title)
        axes.set_ylabel(comparison.metric)
        axes.xaxis.set_major_formatter(lambda number, _: short(number))
    return drawing.svg


def _seconds(row: Row) -> float | None:
    known = [run.metrics["perf/train_seconds"] for run in row.runs if "perf/train_seconds" in run.metrics]
    return fmean(known) if known else None
