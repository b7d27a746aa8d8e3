"""Common style of a comparison's figures. A row has the same look in each, and is distinguishable in greyscale."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d")
"""Okabe and Ito's colour-blind-safe colours; the darkest come last."""
LINES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers. The numbers of colours, lines and markers differ, so that many rows have distinct combinations."""
INK, SOFT, FAINT = "#1f2933", "#52606d", "#9aa5b1"
STYLE: Any = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.grid": True,
    "grid.color": "#d9dee4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # keep text as text, in the font of the page
    "text.parse_math": False,  # run names are not formulas
}


class Drawing:
    """A figure and its SVG.

    Attributes:
        figure: figure to draw on, until `drawn` ends.
        svg: the figure as an SVG element for a page; empty until `drawn` ends.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), layout="constrained")
        self.svg = ""


@contextmanager
def drawn(salt: str, width: float = 4.5, height: float = 3.3) -> Iterator[Drawing]:
    """Context with a figure of a given size in inches. The SVG output is deterministic.

    Args:
        salt: makes element ids unique among the figures of a page.
    """
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": salt}):
        drawing, buffer = Drawing(width, height), io.StringIO()
        yield drawing
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's font may have the glyph
            metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            # `savefig` would draw twice.
            FigureCanvasSVG(drawing.figure).print_svg(buffer, metadata=metadata)  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    drawing.svg = text[text.index("<svg") :]


def look(index: int) -> Any:
    """Colour and marker of a row."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def line(index: int) -> Any:
    """Colour, marker and line style of a row's line."""
    return look(index) | {"linestyle": LINES[index % len(LINES)], "linewidth": 1.6, "markersize": 4}


def by_logarithm(numbers: Sequence[float]) -> bool:
    """True if positive numbers span at least a decade, and should be drawn on a logarithmic scale."""
    return 0 < 10 * min(numbers) <= max(numbers)


def mark(index: int) -> str:
    """A row's marker as an inline SVG element, placed before its name."""
    style = MarkerStyle(look(index)["marker"])
    polygons: Any = style.get_path().transformed(style.get_transform()).to_polygons()
    corners = " ".join(f"{x:.2f},{-y:.2f}" for x, y in polygons[0])
    return (
        '<svg class="mark" width=".8em" height=".8em" viewBox="-.8 -.8 1.6 1.6">'
        f'<polygon points="{corners}" fill="{look(index)["color"]}"/></svg>'
    )
