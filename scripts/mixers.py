"""Measures what docs/conformance.json and tests/contracts/parameters.json lack of a mixer, and writes it there:
`python scripts/mixers.py`. What they have of the others stays."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import torch

from seqlab_export.reports.conformance import CHECKS, Cell, ConformanceRow, all_mixers, all_positions, conformance
from seqlab_export.reports.conformance_page import to_json, to_markdown

ROOT = Path(__file__).parents[1]
MATRIX = ROOT / "docs/conformance.json"
PARAMETERS = ROOT / "tests/contracts/parameters.json"
D_MODEL = 64


def num_parameters() -> dict[str, int]:
    """The number of parameters of each mixer over 64 channels."""
    made: dict[str, Any] = dict(all_mixers())
    with torch.device("meta"):
        return {name: sum(weight.numel() for weight in made[name](D_MODEL).parameters()) for name in made}


def matrix() -> list[ConformanceRow]:
    """The rows of every pair: the stored ones, and the others measured."""
    stored = {(row["mixer"], row["positions"]): row for row in json.loads(MATRIX.read_text(encoding="utf-8"))}
    rows = []
    for (mixer, make), (positions, encode) in product(all_mixers().items(), all_positions().items()):
        if row := stored.get((mixer, positions)):
            rows.append(ConformanceRow(mixer, positions, {check: Cell(**row[check]) for check in CHECKS}))
        else:
            rows += conformance({mixer: make}, {positions: encode})
    return rows


def main() -> None:
    recorded = json.loads(PARAMETERS.read_text(encoding="utf-8"))
    counts = {name: recorded.get(name, count) for name, count in num_parameters().items()}
    rows = matrix()
    PARAMETERS.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    MATRIX.write_text(json.dumps(to_json(rows), indent=1) + "\n", encoding="utf-8")
    MATRIX.with_suffix(".md").write_text(to_markdown(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
