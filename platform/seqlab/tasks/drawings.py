"""SVG figures of a task's results. Matplotlib is imported lazily, because importing it is slow."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERS = 10
"""Largest number of classes for which each cell shows its count."""

MOST_TOKENS = 40
"""Maximum number of tokens on each axis of an attention map."""


class AttentionMap(NamedTuple):
    """Attention weights (H, T, S) of a mixer's H heads between T queries and S keys, and the text of each token."""

    name: str
    weights: NDArray[np.floating]
    queries: Sequence[str]
    keys: Sequence[str]


@contextmanager
def _any_script() -> Iterator[None]:
    """Keeps text as text, so that the reader's fonts draw it, in any script; a dollar sign starts no formula."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


@_any_script()
def confusion_matrix(counts: NDArray[np.int64], labels: Sequence[str]) -> str:
    """Draws a confusion matrix (C, C): rows are true classes, columns are predicted classes."""
    from matplotlib.figure import Figure

    size = 2.2 + 0.42 * len(labels)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    if len(labels) <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            dark = count > counts[row].sum() / 2
            axes.text(column, row, str(count), ha="center", va="center", color="white" if dark else "black")
    return _svg(figure)


@_any_script()
def attention_maps(maps: Sequence[AttentionMap]) -> str:
    """Draws one row of images per mixer and one image per head, with queries down and keys across."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    most_heads = max(len(mixer.weights) for mixer in maps)
    side = 1.2 + 0.13 * min(max(max(len(m.queries), len(m.keys)) for m in maps), MOST_TOKENS)
    figure = Figure(figsize=(side * most_heads + 1, (side + 0.45) * len(maps)), layout="constrained")
    grid = figure.subplots(len(maps), most_heads, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    # With many keys each weight is small; the square-root scale keeps it visible.
    scale = PowerNorm(0.5, vmin=0, vmax=1)
    for row, mixer in zip(grid, maps, strict=True):
        queries, keys = (_ticks(texts[:MOST_TOKENS]) for texts in (mixer.queries, mixer.keys))
        for head, (axes, weights) in enumerate(zip(row, mixer.weights, strict=False)):
            axes.set_axis_on()
            image = axes.imshow(weights[:MOST_TOKENS, :MOST_TOKENS], cmap="Blues", norm=scale)
            axes.set_title(f"{mixer.name}\nhead {head}", fontsize=8)
            axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=6)
            axes.set_yticks(range(len(queries)), queries, fontsize=6)
            axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=grid, shrink=min(0.7, 3 / (side * len(maps))), ticks=[0, 0.01, 0.1, 0.25, 0.5, 1])
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return _svg(figure)


def _ticks(texts: Sequence[str]) -> list[str]:
    """Makes spaces and line ends visible."""
    return [text.replace(" ", "\u2423").replace("\n", "\u21b5") for text in texts]


def _svg(figure: Figure) -> str:
    page = io.StringIO()
    figure.savefig(page, format="svg")
    return page.getvalue()
