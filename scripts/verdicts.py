"""Writes the claims with their verdicts and a number of docs/studies/*.json into the tables of README and
docs/studies.md, and the verdicts into the index of the pages: `python scripts/verdicts.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from seqlab.study.page import index
from seqlab.study.rules import Claim, Verdict
from seqlab.study.study import Study
from seqlab_studies.book import STUDIES

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/studies"
HEAD = " claim | verdict | measured |\n|---|---|---|\n"


def verdicts(study: Study) -> Mapping[str, Mapping[str, str]]:
    """Verdicts of each scale, by the keys of the claims."""
    scales = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]
    return {scale: {key: verdict for key, (verdict, _) in of["verdicts"].items()} for scale, of in scales.items()}


def row(claim: Claim, verdict: str, reason: str) -> str:
    """A claim, its verdict, and the number of the first case that has the verdict, or of the first case."""
    found = reason.partition(f"{verdict}: ")[2] or reason
    first = found.removeprefix(f"{Verdict.SUPPORTED}: ").partition("; ")[0]
    number = first.replace(" = ", ": ") if " = " in first else ""
    measured = f"{number}; {claim.rule.quantity.rstrip(',')}" if number else first
    return f"{claim.says} | {verdict} | {measured} |\n"


def claims(study: Study) -> Iterator[str]:
    """Rows of a study's claims at scale cpu."""
    found = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]["cpu"]["verdicts"]
    return (row(claim, *found[claim.key]) for claim in study.claims)


def pages() -> dict[Path, str]:
    """Contents of the three files, whose tables are made anew."""
    made = {}
    for path, head, rows in (
        (ROOT / "README.md", f"|{HEAD}", (f"| {next(claims(study))}" for study in STUDIES.values())),
        (
            ROOT / "docs/studies.md",
            f"| study |{HEAD.replace('|---', '|---|---', 1)}",
            (f"| `{study.name}` | {one}" for study in STUDIES.values() for one in claims(study)),
        ),
    ):
        text = path.read_text(encoding="utf-8")
        [table] = re.finditer(rf"(?<={re.escape(head)})(\|.*\n)*", text)
        made[path] = text[: table.start()] + "".join(rows) + text[table.end() :]
    found = [(study, scale, of) for study in STUDIES.values() for scale, of in verdicts(study).items()]
    return made | {PAGES / "index.html": index(found)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
