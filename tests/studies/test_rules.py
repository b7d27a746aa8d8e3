"""The verdict on made-up results, on all sides and at every edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from seqlab.studies.rules import Claim, Control, Interval, Rule, Verdict, interval_of, judge

PASS, FAIL = Rule("one", low=0.5), Rule("one", low=0.5)
KNOWN = (Control("one", PASS, True, ""), Control("nought", FAIL, False, ""))
FINE = {"one": [1.0, 1.0, 1.0], "nought": [0.0, 0.0, 0.0]}
S, R, I = Verdict.SUPPORTED, Verdict.REFUTED, Verdict.INCONCLUSIVE  # noqa: E741
EDGES: dict[Rule, list[tuple[tuple[float, float], Verdict]]] = {
    Rule("gain", low=1): [
        ((1, 2), S),
        ((1, 1), S),
        ((1, math.inf), S),
        ((0.999, 2), I),
        ((0.5, 1), I),
        ((0.5, 0.999), R),
        ((-5, -4), R),
        ((math.nan, math.nan), I),
    ],
    Rule("error", high=1): [((0, 1), S), ((0, 1.001), I), ((1, 1.5), I), ((1.001, 2), R)],
    Rule("exponent", low=1.5, high=2.5): [
        ((1.5, 2.5), S),
        ((1.49, 2), I),
        ((2, 2.51), I),
        ((1.4, 2.6), I),
        ((1.0, 1.49), R),
        ((2.51, 3.0), R),
    ],
    Rule("log10 of the error", high=-12, beyond=9): [
        ((-17, -12), S),
        ((-11, -5), I),
        ((-3, -2), I),
        ((-2.99, 0), R),
    ],
    Rule("gain", low=2, beyond=1): [((2, 3), S), ((1, 1.5), I), ((0.5, 1), I), ((0.5, 0.9), R)],
}


@pytest.mark.parametrize(
    ("rule", "interval", "verdict"), [(rule, *row) for rule, rows in EDGES.items() for row in rows], ids=str
)
def test_edges(rule: Rule, interval: tuple[float, float], verdict: Verdict) -> None:
    assert rule.judge(Interval(*interval)) is verdict


def test_an_interval_is_said_in_words_where_it_is_no_number() -> None:
    assert str(interval_of([1.0, math.nan, 2.0])) == "no number" and str(interval_of([2.0])) == "2"


def claim(*cases: str, exact: bool = False) -> Claim:
    return Claim("some", "A is better", "L0", cases, Rule("gain", low=1), KNOWN, exact)


def values(verdict: Verdict) -> list[float]:
    return {S: [2.0, 2.1, 2.2], R: [0.0, 0.1, 0.2], I: [0.5, 1.0, 1.5]}[verdict]


ALL = {
    (S,): S,
    (R,): R,
    (I,): I,
    (S, S): S,
    (R, R): R,
    (S, R): Verdict.DEPENDS,
    (S, I): I,
    (R, I): I,
    (S, R, I): Verdict.DEPENDS,
}


@pytest.mark.parametrize(("found", "verdict"), ALL.items(), ids=str)
def test_of_several_cases(found: tuple[Verdict, ...], verdict: Verdict) -> None:
    cases = [f"case {place}" for place in range(len(found))]
    judgement = judge(claim(*cases), FINE | dict(zip(cases, map(values, found), strict=True)))
    assert judgement.verdict is verdict and tuple(judgement.cases.values()) == found
    assert all(case in judgement.reason for case in cases)


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ({"one": [0.0, 0.0, 0.0]}, "the control one must be supported and is refuted"),
        ({"one": [0.4, 0.5, 0.6]}, "the control one must be supported and is inconclusive"),
        ({"nought": [1.0, 1.0, 1.0]}, "the control nought must be refuted and is supported"),
        ({"nought": [math.nan] * 3}, "the control nought must be refuted and is inconclusive"),
    ],
)
def test_a_control_that_does_not_do_what_it_must(measured: dict[str, list[float]], said: str) -> None:
    judgement = judge(claim("a"), FINE | {"a": values(S)} | measured)
    assert judgement.verdict is Verdict.INVALID and judgement.reason.startswith(said)


def test_two_seeds_are_too_few_but_where_none_has_a_part() -> None:
    two = {name: found[:2] for name, found in (FINE | {"a": [2.0, 2.0, 2.0]}).items()}
    assert judge(claim("a"), two).verdict is I and "2 of the 3 seeds" in judge(claim("a"), two).reason
    once = {name: found[:1] for name, found in two.items()}
    assert judge(claim("a", exact=True), once).verdict is S


def test_what_cannot_be_measured_here() -> None:
    judgement = judge(claim("a"), {}, needs="needs a CUDA device")
    assert judgement.verdict is Verdict.NOT_TESTABLE and judgement.reason == "needs a CUDA device"


def test_intervals_are_students() -> None:
    drawn = np.random.default_rng(0).normal(3, 2, 5)
    low, high = stats.t.interval(0.95, 4, drawn.mean(), stats.sem(drawn))
    assert interval_of(drawn.tolist()) == pytest.approx((low, high))
    assert str(Interval(2, 2)) == "2" and str(Interval(1, 2)) == "1.5 ± 0.5"


def test_a_claim_without_a_control_that_must_fail_is_none() -> None:
    with pytest.raises(AssertionError, match="both kinds"):
        Claim("some", "", "", ("a",), PASS, KNOWN[:1])
