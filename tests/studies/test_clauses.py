"""Table of the lectures' clauses against the declared claims."""

from __future__ import annotations

import re
from collections import defaultdict

from repository.source_tree import ROOT
from seqlab_studies.book import STUDIES

ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", (ROOT / "docs/claims.md").read_text("utf-8"), flags=re.MULTILINE)
KEYS = {f"{study.name}/{claim.key}": claim for study in STUDIES.values() for claim in study.claims}


def test_each_clause_of_all_claims_has_a_test_or_a_reason() -> None:
    assert sorted({int(number) for number, _, _ in ROWS}) == list(range(1, 26))
    for _, clause, tested in ROWS:
        named = re.findall(r"`([^`]+)`", tested)
        assert set(named) <= set(KEYS), clause
        assert named or tested.startswith("none: "), clause


def test_each_claim_of_a_lecture_is_in_the_rows_of_its_number() -> None:
    tests = defaultdict[int, set[str]](set)
    for number, _, tested in ROWS:
        tests[int(number)] |= set(re.findall(r"`([^`]+)`", tested))
    for key, claim in KEYS.items():
        for said in re.findall(r"claims? ([\d, and]+)", claim.source):
            for number in re.findall(r"\d+", said):
                assert key in tests[int(number)], f"{key} says that it is of claim {number}"
