"""The verdicts that README and docs/studies.md print are those of docs/studies, of every study and claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path

import pytest

from seqlab.studies.book import STUDIES

ROOT = Path(__file__).resolve().parents[2]


def verdicts(name: str) -> Mapping[str, str]:
    """Verdicts at cpu scale, by the claim's key."""
    found = json.loads((ROOT / "docs/studies" / f"{name}.json").read_text(encoding="utf-8"))["scales"]["cpu"][
        "verdicts"
    ]
    return {key: verdict for key, (verdict, _) in found.items()}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_stands_in_docs_with_the_verdict_of_each_claim(name: str) -> None:
    found, study = verdicts(name), STUDIES[name]
    assert list(found) == [claim.key for claim in study.claims], "the page is of another declaration"
    readme, docs = ((ROOT / page).read_text("utf-8").splitlines() for page in ("README.md", "docs/studies.md"))
    said = ", ".join(f"{key} {verdict}" for key, verdict in found.items())
    assert f"| {study.question} | {said} |" in readme
    for claim in study.claims:
        assert f"| `{name}` | {claim.says} | {found[claim.key]} |" in docs
    page = (ROOT / "docs/studies" / f"{name}.html").read_text(encoding="utf-8")
    index = (ROOT / "docs/studies/index.html").read_text(encoding="utf-8")
    assert escape(study.question) in page and index.count(f'href="{name}.html"') == len(study.claims)
