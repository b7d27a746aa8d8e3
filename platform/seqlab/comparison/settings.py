"""Settings tried by a sweep, as parallel coordinates (Inselberg 1985), in SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps

from seqlab.comparison.comparison import Comparison
from seqlab.comparison.differences import differences
from seqlab.comparison.drawing import FAINT, INK, by_logarithm, drawn
from seqlab.comparison.rows import more_is_better, short

MOST_AXES, MOST_CHOICES, MOST_NUMBERS = 8, 12, 3
BEHIND: Any = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}


def settings(comparison: Comparison) -> dict[str, str]:
    """Figure of the varied options and the metric, for each sweep among the rows with more than one setting."""
    sweeps = sorted({row.run.tags["sweep"] for row in comparison.rows if "sweep" in row.run.tags})
    return {name: svg for name in sweeps if (svg := _of_sweep(comparison, name)) is not None}


def _of_sweep(comparison: Comparison, sweep: str) -> str | None:
    rows = [row for row in comparison.rows if row.run.tags.get("sweep") == sweep and row.value is not None]
    varied = [one for one in differences(rows) if one.everywhere][:MOST_AXES]
    if not varied:
        return None
    columns = [*((one.title, one.values) for one in varied)]
    columns.append((comparison.metric, [str(row.value) for row in rows]))
    places, ticks = zip(*(_axis(texts) for _, texts in columns), strict=True)
    good = np.array(places[-1]) if more_is_better(comparison.metric) else 1 - np.array(places[-1])
    with drawn(f"settings {sweep}", max(4.5, 1.6 * len(columns)), 3.3) as drawing:
        axes = drawing.figure.subplots()
        axes.axis("off")
        for k, (title, _) in enumerate(columns):
            axes.plot([k, k], [0, 1], color=FAINT, linewidth=1)
            axes.text(k, 1.09, title, ha="center", va="bottom", fontsize=9, color=INK)
            for place, text in ticks[k]:
                axes.text(k + 0.04, place, text, va="center", fontsize=8, zorder=3, bbox=BEHIND)
        for at in reversed(range(len(rows))):  # draws the best row on top
            look = {"color": colormaps["cividis"](0.85 * (1 - good[at])), "linewidth": 2.6 if at == 0 else 1.2}
            axes.plot(range(len(columns)), [place[at] for place in places], **look)
        axes.set(xlim=(-0.1, len(columns) - 0.5), ylim=(-0.06, 1.2))
    return drawing.svg


def _axis(texts: Sequence[str]) -> tuple[list[float], list[tuple[float, str]]]:
    """Positions of the values on an axis from 0 to 1, and its labels: all values if there are few; for many numbers,
    the minimum, the midpoint and the maximum."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        choices = sorted(set(texts))
        place = {text: at / max(1, len(choices) - 1) for at, text in enumerate(choices)}
        return [place[text] for text in texts], [(place[text], text) for text in choices[:MOST_CHOICES]]
    least, most = min(numbers), max(numbers)
    log = by_logarithm(numbers)
    scaled = np.log(numbers) if log else np.array(numbers)
    low, high = scaled.min(), scaled.max()
    places = [float(place) for place in (scaled - low) / (high - low or 1)]
    written = dict(zip(places, numbers, strict=True))
    if len(written) > MOST_NUMBERS:
        middle = (low + high) / 2
        written = {0.0: least, 0.5: float(np.exp(middle) if log else middle), 1.0: most}
    return places, [(place, short(number)) for place, number in written.items()]
