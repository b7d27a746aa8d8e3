"""Verdicts of the committed records, judged again by the declared rules from the values of each seed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from repository.source_tree import ROOT
from seqlab.study.rules import Control, judge
from seqlab.study.study import Study
from seqlab_studies.book import STUDIES


def as_it_must(control: Control) -> float:
    """A value that gives a control its expected verdict."""
    rule, step = control.rule, 1e-6
    if math.isfinite(rule.low):
        return rule.low + step if control.holds else rule.low - rule.beyond - step
    return rule.high - step if control.holds else rule.high + rule.beyond + step


def judged(study: Study, of_scale: Any) -> Iterator[tuple[str, list[str]]]:
    """Verdict and reason of each claim whose cases are stored. A control that was declared after the fits has no value
    and is taken to come out as it must."""
    seeds = of_scale["values"]
    values = {case: [math.nan if seed[case] is None else seed[case] for seed in seeds] for case in seeds[0]}
    for claim in study.claims:
        if set(claim.cases) <= values.keys():
            missing = {one.case: [as_it_must(one)] * len(seeds) for one in claim.controls if one.case not in values}
            found = judge(claim, values | missing)
            yield claim.key, [found.verdict, found.reason]


def test_stored_verdicts_are_those_of_the_stored_values() -> None:
    count = 0
    for study in STUDIES.values():
        stored = json.loads((ROOT / f"docs/studies/{study.name}.json").read_text(encoding="utf-8"))
        for of_scale in stored["scales"].values():
            for key, found in judged(study, of_scale):
                assert found == of_scale["verdicts"][key], f"{study.name}/{key}"
                count += 1
    assert count > 60
