"""The parity matrix as rows, as tables and as a page."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from itertools import groupby

import onnxruntime
from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table

from seqlab.files.phases import listened
from seqlab_export.reports.parity import SAME, Cell

COLUMNS = tuple(
    ["model", "precision", "runtime", "error", "of limit", "largest", "KL", "KL p99", "top-1", "greedy text", "test"]
)


def to_row(cell: Cell) -> tuple[str, ...]:
    """A measured cell as a row with the columns `COLUMNS`."""
    assert cell.error is not None and cell.limit and cell.largest is not None
    divergence = ["" if value is None else f"{max(value, 0):.1e}" for value in (cell.kl, cell.kl_p99)]
    return (
        cell.model,
        cell.precision,
        cell.runtime,
        f"{cell.error:.1e}{'' if cell.ok else ' FAILED'}",
        f"{cell.error / cell.limit:.0%}" if math.isfinite(cell.error) else "",
        f"{cell.largest:.1e}",
        *divergence,
        "" if cell.top1 is None else f"{cell.top1:.1%}",
        cell.greedy,
        ", ".join(f"{name} {value:.4g}" for name, value in (cell.scores or {}).items()),
    )


def _watched(measured: Iterator[Cell]) -> Iterator[Cell]:
    """The cells; if stderr is a terminal, it shows the phase of the work while one is measured."""
    while True:
        status = Console(stderr=True).status("measuring")
        with status, listened(partial(_show_phase, status)):
            cell = next(measured, None)
        if cell is None:
            return
        yield cell


def _show_phase(status: Status, phase: str, done: int, total: int) -> None:
    status.update(f"measuring; {phase} {done}/{total}")


def show(measured: Iterator[Cell]) -> list[Cell]:
    """Prints a table for each model and precision as soon as it is measured; values too long for 80 columns follow as
    separate lines."""
    console = Console()
    cells: list[Cell] = []
    for (model, precision), group in groupby(_watched(measured), key=lambda cell: (cell.model, cell.precision)):
        print(f"Parity of {model} in {precision} with float64")
        table = Table(*COLUMNS[2:-2], box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        several = [*group]
        cells += several
        lines = []
        for cell in several:
            if cell.missing:
                lines.append(f"{cell.runtime}: {cell.missing}")
                continue
            _, _, runtime, *numbers, greedy, scores = to_row(cell)
            table.add_row(runtime, *numbers)
            lines += [f"{runtime}: greedy text {greedy}"] if greedy not in ("", SAME) else []
            lines += [f"{runtime}: test {scores}"] if scores else []
        if table.rows:
            console.print(table)
        print("\n".join(lines), end="\n\n", flush=True)
    return cells


def to_markdown(cells: Sequence[Cell]) -> str:
    """The cells as a page: measured cells, then cells that were not measured, with the reasons."""
    lines = [PAGE.format(torch=version("torch"), onnxruntime=onnxruntime.__version__, machine=platform.machine())]
    lines += [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(to_row(cell))} |" for cell in cells if not cell.missing]
    lines += ["", "## Not measured", "", "| runtime | why | models and precisions |", "|---|---|---|"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.missing:
            reasons.setdefault((cell.runtime, cell.missing), []).append(f"{cell.model} {cell.precision}")
    lines += [f"| {runtime} | {why} | {', '.join(which)} |" for (runtime, why), which in reasons.items()]
    return "\n".join(lines) + "\n"


PAGE = """# The parity matrix

Made by `seqlab parity`, with torch {torch} and onnxruntime {onnxruntime} on {machine}. Each line is one model in one
precision on one runtime, against the float64 model of its golden file (docs/bundle.md).

- **error**: RMS, relative to the reference, at the check nearest to its budget; **of limit**, as a share of the budget;
  **largest** single error. Compiled PyTorch is measured at one batch size.
- **KL**, mean and 99th percentile in nats, from the float64 distribution; **top-1**, how often the likeliest token or
  class is the same. Where the fp32 bundle's own KL is 1e-12 or less, a quantised one's is from the fp32 bundle too.
- **greedy text**: where it first differs, with the float64 margin there.
- **test**: the run's task on its test split, of the model in PyTorch (fp32) and of its bundles.
- Models named by their config are untrained, at the config's size; the others are runs.
"""
