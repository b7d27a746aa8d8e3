"""The verdict on made-up results, on all sides and at every edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from seqlab.study.rules import Claim, Control, Interval, Rule, Verdict, interval_of, judge

PASS = Rule("one", low=0.5)
KNOWN = (Control("one", PASS, True, ""), Control("nought", PASS, False, ""))
FINE = {"one": [1.0, 1.0, 1.0], "nought": [0.0, 0.0, 0.0]}
S, R, I = Verdict.SUPPORTED, Verdict.REFUTED, Verdict.INCONCLUSIVE  # noqa: E741
EDGES: list[tuple[Rule, dict[Verdict, list[tuple[float, float]]]]] = [
    (
        Rule("gain", low=1),
        {
            S: [(1, 2), (1, 1), (1, math.inf)],
            I: [(0.999, 2), (0.5, 1), (math.nan, math.nan)],
            R: [(0.5, 0.999), (-5, -4)],
        },
    ),
    (Rule("error", high=1), {S: [(0, 1)], I: [(0, 1.001), (1, 1.5)], R: [(1.001, 2)]}),
    (
        Rule("exponent", low=1.5, high=2.5),
        {S: [(1.5, 2.5)], I: [(1.49, 2), (2, 2.51), (1.4, 2.6)], R: [(1.0, 1.49), (2.51, 3.0)]},
    ),
    (Rule("log10 of the error", high=-12, beyond=9), {S: [(-17, -12)], I: [(-11, -5), (-3, -2)], R: [(-2.99, 0)]}),
    (Rule("gain", low=2, beyond=1), {S: [(2, 3)], I: [(1, 1.5), (0.5, 1)], R: [(0.5, 0.9)]}),
]


@pytest.mark.parametrize(("rule", "edges"), EDGES, ids=str)
def test_edges(rule: Rule, edges: dict[Verdict, list[tuple[float, float]]]) -> None:
    found = {verdict: [rule.judge(Interval(*interval)) for interval in some] for verdict, some in edges.items()}
    assert found == {verdict: [verdict] * len(some) for verdict, some in edges.items()}


def claim(*cases: str, exact: bool = False) -> Claim:
    return Claim("some", "A is better", "L0", cases, Rule("gain", low=1), KNOWN, exact)


def values(verdict: Verdict) -> list[float]:
    return {S: [2.0, 2.1, 2.2], R: [0.0, 0.1, 0.2], I: [0.5, 1.0, 1.5]}[verdict]


ALL = {
    **{(one,) * times: one for one in (S, R) for times in (1, 2)},
    **dict.fromkeys([(I,), (S, I), (R, I)], I),
    **dict.fromkeys([(S, R), (S, R, I)], Verdict.DEPENDS),
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


def test_intervals_are_students_and_said_in_words_where_they_are_no_number() -> None:
    drawn = np.random.default_rng(0).normal(3, 2, 5)
    low, high = stats.t.interval(0.95, 4, drawn.mean(), stats.sem(drawn))
    assert interval_of(drawn.tolist()) == pytest.approx((low, high))
    assert str(Interval(2, 2)) == str(interval_of([2.0])) == "2" and str(Interval(1, 2)) == "1.5 ± 0.5"
    assert str(interval_of([1.0, math.nan, 2.0])) == "no number"


def test_a_claim_without_a_control_that_must_fail_is_none() -> None:
    with pytest.raises(AssertionError, match="both kinds"):
        Claim("some", "", "", ("a",), PASS, KNOWN[:1])
