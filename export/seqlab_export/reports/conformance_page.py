"""The conformance matrix as JSON, as a page and as a table."""

from __future__ import annotations

from typing import Any

import torch
from rich import box
from rich.table import Column, Table

from seqlab.laws import LIMIT
from seqlab_export.reports.conformance import CHECKS, D_MODEL, LENGTH, ConformanceRow


def to_json(rows: list[ConformanceRow]) -> list[dict[str, Any]]:
    """The rows as plain values, with cells `{"error": x}`, `{"unsupported": reason}` or `{"failed": what}`."""
    return [
        {
            "mixer": row.mixer,
            "positions": row.positions,
            **{
                name: {kind: value for kind, value in cell._asdict().items() if value is not None}
                for name, cell in row.cells.items()
            },
        }
        for row in rows
    ]


def to_table(rows: list[ConformanceRow]) -> Table:
    """The rows as a table of errors; `reasons` explains cells without an error."""
    names = (Column(title, overflow="fold") for title in ("mixer", "positions"))
    table = Table(*names, *CHECKS, box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for row in rows:
        cells = [row.cells[name] for name in CHECKS]
        shown = ["failed" if cell.failed else "-" if cell.error is None else str(cell) for cell in cells]
        table.add_row(row.mixer, row.positions, *shown)
    return table


def reasons(rows: list[ConformanceRow]) -> list[str]:
    """Lines on failed and unsupported checks; checks with the same reason share a line."""
    lines = []
    for row in rows:
        checks: dict[str, list[str]] = {}
        for name in CHECKS:
            if row.cells[name].error is None or row.cells[name].failed:
                checks.setdefault(str(row.cells[name]), []).append(name)
        lines += [f"{row.mixer} with {row.positions}, {', '.join(names)}: {why}" for why, names in checks.items()]
    return lines


def to_markdown(rows: list[ConformanceRow]) -> str:
    """The rows as a page: supported combinations with their errors, then unsupported ones with the reasons."""
    possible = [row for row in rows if any(cell.unsupported is None for cell in row.cells.values())]
    lines = [
        PAGE.format(torch=torch.__version__),
        "",
        f"| mixer | positions | {' | '.join(CHECKS)} |",
        "|---" * 8 + "|",
    ]
    for row in possible:
        lines.append(f"| {row.mixer} | {row.positions} | {' | '.join(str(row.cells[name]) for name in CHECKS)} |")
    lines += ["", "## Pairs that are refused", "", "| mixer | positions | reason |", "|---|---|---|"]
    for row in rows:
        if row not in possible:
            lines.append(f"| {row.mixer} | {row.positions} | {row.cells['laws']} |")
    return "\n".join(lines) + "\n"


PAGE = f"""# The conformance matrix

Made by `seqlab conformance`. Every cell is a measured error, relative to the RMS of the reference, or says why there
is none.

- **laws**: the largest error that the laws in `seqlab.laws` find in float64, relative to the largest value or to 1;
  above {LIMIT:.0e} one is broken.
  Where a state grows, one of them is that a fixed [capacity](contract.md#capacity) changes nothing.
- **fp32, bf16, fp16**: the mixer in this precision on the CPU against float64.
- **ONNX full, ONNX step**: the graphs of a model of one layer in onnxruntime, fp32, against float64: a decoder, an
  encoder-decoder where the mixer attends to a source, a tagger (which has no steps) where it is not causal. Where they
  fail the parity gate (docs/bundle.md), the cell says so.

{D_MODEL} channels, {LENGTH} tokens, default options, torch {{torch}}, CPU. CUDA: not run, no CUDA device."""
