"""The tables of docs/cuda.md, in Markdown, of what `scripts/gpu_check.sh` measured.

python benchmarks/gpu_results.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from peers.results import FILE, cell, lines_of


def main(path: Path) -> None:
    last: dict[tuple[str, str], dict[tuple[str, str], dict[str, Any]]] = {}
    for line in lines_of(path):
        table = last.setdefault((line["part"], line["hardware"]), {})
        table[line["row"], line["column"]] = line
    for (part, hardware), table in last.items():
        dates = sorted(line["date"][:10] for line in table.values())
        versions = dict(item for line in table.values() for item in line["versions"].items())
        done = sum("found" in line for line in table.values())
        said = ", ".join(" ".join(item) for item in versions.items())
        print(f"\n## {part}: {hardware}, {dates[0]} to {dates[-1]}, {said}; {done} of {len(table)} measured\n")
        columns = [*dict.fromkeys(column for _, column in table)]
        print("|", " | ".join(["", *columns]), "|")
        print("|---" * (len(columns) + 1) + "|")
        for row in dict.fromkeys(row for row, _ in table):
            cells = [cell(table[row, column]) if (row, column) in table else "" for column in columns]
            if any(cells):  # a test that passed has none
                print("|", " | ".join([row, *cells]), "|")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
