"""Writes the verdicts of docs/studies/*.json into the tables of README and docs/studies.md, and into the index of the
pages: `python scripts/verdicts.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from seqlab.study.page import index
from seqlab.study.study import Study
from seqlab_studies.book import STUDIES

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/studies"


def verdicts(study: Study) -> Mapping[str, Mapping[str, str]]:
    """Verdicts of each scale, by the keys of the claims."""
    scales = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]
    return {scale: {key: verdict for key, (verdict, _) in of["verdicts"].items()} for scale, of in scales.items()}


def by_question() -> Iterator[str]:
    """Rows of README: a study at scale cpu."""
    for study in STUDIES.values():
        said = ", ".join(f"{key} {verdict}" for key, verdict in verdicts(study)["cpu"].items())
        yield f"| {study.question} | {said} |\n"


def by_claim() -> Iterator[str]:
    """Rows of docs/studies.md: a claim at scale cpu."""
    for study in STUDIES.values():
        found = verdicts(study)["cpu"]
        yield from (f"| `{study.name}` | {claim.says} | {found[claim.key]} |\n" for claim in study.claims)


def pages() -> dict[Path, str]:
    """Contents of the three files, whose tables are made anew."""
    made = {}
    for path, head, rows in (
        (ROOT / "README.md", "| question | verdicts |\n|---|---|\n", by_question()),
        (ROOT / "docs/studies.md", "| study | claim | verdict |\n|---|---|---|\n", by_claim()),
    ):
        text = path.read_text(encoding="utf-8")
        [table] = re.finditer(rf"(?<={re.escape(head)})(\|.*\n)*", text)
        made[path] = text[: table.start()] + "".join(rows) + text[table.end() :]
    found = [(study, scale, of) for study in STUDIES.values() for scale, of in verdicts(study).items()]
    return made | {PAGES / "index.html": index(found)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
