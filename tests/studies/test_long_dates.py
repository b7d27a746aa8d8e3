"""Dates that are tested, and the part of the answer that is compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from seqlab.studies.long_dates import (
    ALL,
    ANY,
    BEYOND,
    ENCODINGS,
    LONGEST,
    OF_ANOTHER,
    RECURRENCES,
    SHORTEST,
    TRAINED,
    LongDates,
    compared,
    dates_by_length,
    pairs,
    shares_of,
)
from seqlab.studies.rules import Verdict, judge

LENGTHS = range(SHORTEST, LONGEST + 1)


def shares(short: float, long: float) -> dict[int, float]:
    return {length: long if length in BEYOND else short for length in LENGTHS}


def judged(changed: Mapping[str, dict[int, float]]) -> dict[str, Verdict]:
    named = {arm.name: shares(1.0, 1.0) for arm in LongDates().arms("cpu")}
    named |= {OF_ANOTHER: shares(0.0, 0.0)} | dict(changed)
    values = {case: [value] * 3 for case, value in compared(named).items()}
    return {claim.key: judge(claim, values).verdict for claim in LongDates.claims}


@pytest.mark.slow
def test_verdicts_on_all_sides() -> None:
    assert set(judged({}).values()) == {Verdict.SUPPORTED}
    assert judged({name: shares(1.0, 0.5) for name in ENCODINGS})["any-length"] == Verdict.REFUTED
    assert judged({ENCODINGS[0]: shares(1.0, 0.9)})["any-length"] == Verdict.INCONCLUSIVE
    assert judged({ENCODINGS[0]: shares(0.85, 0.84)})["any-length"] == Verdict.SUPPORTED
    assert judged({name: shares(1.0, 0.1) for name in RECURRENCES})["recurrence"] == Verdict.REFUTED
    not_learnt = judged({ENCODINGS[0]: shares(0.6, 0.6)})
    assert not_learnt == {"any-length": Verdict.INCONCLUSIVE, "recurrence": Verdict.SUPPORTED}
    for broken in ({ALL: shares(1.0, 0.3)}, {ANY: shares(0.7, 0.7)}, {OF_ANOTHER: shares(1.0, 1.0)}):
        assert set(judged(broken).values()) == {Verdict.INVALID}, broken


@pytest.mark.slow
def test_dates_that_are_tested() -> None:
    words = {word for source, _ in pairs("train") if len(source) <= TRAINED for word in source.split()}
    trained = {target for _, target in pairs("train")}
    first, second = dates_by_length(0), dates_by_length(1)
    assert list(first) == list(LENGTHS) and min(map(len, first.values())) > 20
    for length, of in first.items():
        for source, target in of:
            assert len(source) == length and target not in trained
            assert all(word in words for word in source.split() if word.isalpha())
    assert not {pair for of in first.values() for pair in of} >= {pair for of in second.values() for pair in of}


def test_shares_by_hand() -> None:
    tested = {13: [("a", "x"), ("b", "y")], 14: [("c", "z")]}
    assert shares_of(["x", "x", "z"], ["x", "y", "z"], tested) == {13: 0.5, 14: 1.0}
    assert compared({"any": shares(0.9, 0.45)}) == {"any": pytest.approx(0.5), "any, short": pytest.approx(0.9)}
    assert (
        math.isnan(compared({"any": shares(0.5, 0.5)})["any"]) and compared({OF_ANOTHER: shares(0, 0)})[OF_ANOTHER] == 0
    )


def test_figures_have_their_models() -> None:
    points = [
        {"model": arm.name, "length": length, "right": 0.5, "seed": 0}
        for arm in LongDates().arms("cpu")
        for length in LENGTHS
    ]
    for claim in LongDates.claims:
        drawn = LongDates().figure(claim, points).to_dict()
        assert max(len(rows) for rows in drawn["datasets"].values()) >= 2 * len(LENGTHS)
