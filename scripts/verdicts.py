"""Writes the claims with their verdicts and a number of docs/studies/*.json into docs/studies.md, three of them into
README, and the verdicts into the index of the pages: `python scripts/verdicts.py`."""

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
HEAD = "| study | claim | verdict | measured |\n|---|---|---|---|\n"
IN_README = ("recall", "heads", "layers")
"""Studies whose first claims are in README."""


def verdicts(study: Study) -> Mapping[str, Mapping[str, str]]:
    """Verdicts of each scale, by the keys of the claims."""
    scales = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]
    return {scale: {key: verdict for key, (verdict, _) in of["verdicts"].items()} for scale, of in scales.items()}


def told(claim: Claim, verdict: str, reason: str) -> tuple[str, str, str]:
    """A claim, its verdict, and the number of the first case that has the verdict, or of the first case."""
    found = reason.partition(f"{verdict}: ")[2] or reason
    first = found.removeprefix(f"{Verdict.SUPPORTED}: ").partition("; ")[0]
    number = first.replace(" = ", ": ") if " = " in first else ""
    measured = f"{number}; {claim.rule.quantity.rstrip(',')}" if number else first
    return claim.says, verdict, measured


def claims(study: Study) -> Iterator[tuple[str, str, str]]:
    """A study's claims at scale cpu, as `told`."""
    found = json.loads((PAGES / f"{study.name}.json").read_text(encoding="utf-8"))["scales"]["cpu"]["verdicts"]
    return (told(claim, *found[claim.key]) for claim in study.claims)


def pages() -> dict[Path, str]:
    """Contents of the three files, whose claims are made anew."""
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/studies.md"))
    rows = [f"| `{study.name}` | {' | '.join(one)} |\n" for study in STUDIES.values() for one in claims(study)]
    [table] = re.finditer(rf"(?<={re.escape(HEAD)})(\|.*\n)*", page)
    chosen = [next(claims(STUDIES[name])) for name in IN_README]
    items = [f"- *{says}* {verdict.capitalize()}: {measured}.\n" for says, verdict, measured in chosen]
    [places] = re.finditer(r"(?<=<!-- claims -->\n)[^<]*", readme)
    made = {
        ROOT / "README.md": readme[: places.start()] + "".join(items) + readme[places.end() :],
        ROOT / "docs/studies.md": page[: table.start()] + "".join(rows) + page[table.end() :],
    }
    found = [(study, scale, of) for study in STUDIES.values() for scale, of in verdicts(study).items()]
    return made | {PAGES / "index.html": index(found)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
