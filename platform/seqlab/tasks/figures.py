"""Figures of what a task measures, as SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

MOST_NUMBERS = 10
"""Classes up to which each cell shows its count."""


def confusion_matrix(counts: NDArray[np.int64], labels: Sequence[str]) -> str:
    """Counts (C, C) of rows by their true class (down) and the predicted one (across)."""
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
    page = io.StringIO()
    figure.savefig(page, format="svg")
    return page.getvalue()
