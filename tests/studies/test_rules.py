"""The verdict on made-up results, on all sides and at every edge."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import stats

from seqlab.comparison.statistics import MOST_SEEDS
from seqlab.study.rules import Claim, Control, Interval, Rule, Verdict, cost, interval_of, judge

PASS = Rule("one", low=0.5)
KNOWN = (Control("one", PASS, True, ""), Control("nought", PASS, False, ""))
FINE = {"one": [1.0, 1.0, 1.0], "nought": [0.0, 0.0, 0.0]}
S, R, I = Verdict.SUPPORTED, Verdict.REFUTED, Verdict.INCONCLUSIVE  # noqa: E741
A, N = Verdict.ABOUT, Verdict.NOT_MEASURED
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
    (
        Rule("log10 of the error", high=-12, beyond=9),
        {
            S: [(-17, -12)],
            A: [(-12, -3), (-11, -5), (-3, -3)],
            I: [(-12.01, -5), (-11, -2.99), (-3, -2)],
            R: [(-2.99, 0)],
        },
    ),
    (
        Rule("gain", low=2, beyond=1),
        {S: [(2, 3)], A: [(1, 2), (1, 1.5)], I: [(0.99, 1.5), (1.5, 2.01), (0.5, 1)], R: [(0.5, 0.99)]},
    ),
    (
        Rule("difference", low=-1, high=1, beyond=1),
        {S: [(-1, 1)], A: [(-2, -1), (1, 2)], I: [(0, 1.01), (-2, -0.99), (-2.01, -1), (-1.5, 1.5)], R: [(2.01, 3)]},
    ),
]


@pytest.mark.parametrize(("rule", "edges"), EDGES, ids=str)
def test_edges(rule: Rule, edges: dict[Verdict, list[tuple[float, float]]]) -> None:
    found = {verdict: [rule.judge(Interval(*interval)) for interval in some] for verdict, some in edges.items()}
    assert found == {verdict: [verdict] * len(some) for verdict, some in edges.items()}


def claim(*cases: str, exact: bool = False) -> Claim:
    return Claim("some", "A is better", "L0", cases, Rule("gain", low=1, beyond=0.4), KNOWN, exact)


def values(verdict: Verdict) -> list[float]:
    decided = {S: [2.0, 2.1, 2.2], R: [0.0, 0.1, 0.2], A: [0.8, 0.8, 0.81]}
    return (decided | {I: [0.5, 1.0, 1.5], N: [math.nan] * 3})[verdict]


ALL: dict[tuple[Verdict, ...], Verdict] = {
    **{(one,) * times: one for one in (S, R, A, N) for times in (1, 2)},
    **dict.fromkeys([(I,), (S, I), (R, I), (A, I), (I, N)], I),
    **dict.fromkeys([(S, R), (S, R, I), (S, A), (R, A), (R, A, I), (S, R, N)], Verdict.DEPENDS),
    **{(one, N): one for one in (S, R, A)},
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


@pytest.mark.parametrize(
    ("measured", "verdict", "said"),
    [
        ([2.0, 2.1, 2.2], S, "a = 2.1 ± 0.25"),
        ([2.0, 2.1, 2.2, math.nan], S, "a = 2.1 ± 0.25 (3 of 4 seeds have a number)"),
        ([2.0, math.nan, 2.1, math.nan], I, "a = 2.05 ± 0.64 (2 of 4 seeds have a number, 6 for 3 of them)"),
        ([2.0, math.nan, math.nan], I, "a = 2 (1 of 3 seeds have a number, 9 for 3 of them)"),
        ([math.nan] * 4, N, "a = no number"),
    ],
)
def test_a_seed_without_a_number_is_counted_and_does_not_end_a_case(
    measured: list[float], verdict: Verdict, said: str
) -> None:
    controls = {"one": [1.0] * len(measured), "nought": [0.0] * len(measured)}
    judgement = judge(claim("a"), controls | {"a": measured})
    assert judgement.verdict is verdict and judgement.reason.startswith(said)


@pytest.mark.parametrize("verdict", [S, R, A])
def test_the_cost_is_the_first_number_of_seeds_that_decides(verdict: Verdict) -> None:
    """Found by drawing none: means and spreads are those of the seeds at hand."""
    rule, far = Rule("gain", low=1, beyond=0.4), {S: 1.4, A: 0.8, R: 0.2}[verdict]
    found = [far - 0.2, far, far + 0.2]
    (said,) = re.findall(r"(\d+) such seeds", cost(rule, found, 3))

    def interval(seeds: int) -> Interval:
        half = stats.t.ppf(0.975, seeds - 1) * 0.2 / math.sqrt(seeds)
        return Interval(far - half, far + half)

    assert cost(rule, found, 3).endswith(f": {verdict}")
    assert cost(rule, found, 6) == cost(rule, found, 3).replace(said, str(2 * int(said)))
    assert rule.judge(interval(int(said))) is verdict and rule.judge(interval(int(said) - 1)) is I
    judgement = judge(claim("a"), FINE | {"a": found})
    assert judgement.verdict is I and f"({cost(rule, found, 3)})" in judgement.reason


def test_no_number_of_seeds_decides_a_mean_on_an_edge() -> None:
    assert cost(Rule("gain", low=1), [0.5, 1.0, 1.5], 3) == f"more than {MOST_SEEDS:,} such seeds"


def test_an_interval_does_not_leave_what_is_possible() -> None:
    share = Rule("share", low=0.9, possible=(0, 1))
    values = [0.94, 0.96, 1.0]
    free, cut = interval_of(values, Rule("share")), interval_of(values, share)
    assert free.high > 1 and (cut.low, cut.high) == (free.low, 1) and cut.mean == pytest.approx(np.mean(values))
    assert str(cut) == f"0.9667 ({free.low:.4g} to 1)" and str(free) == "0.9667 ± 0.076"
    assert interval_of([0.0, 0.0, 0.1], share).low == 0


def test_what_cannot_be_measured_here() -> None:
    judgement = judge(claim("a"), {}, needs="needs a CUDA device")
    assert judgement.verdict is Verdict.NOT_TESTABLE and judgement.reason == "needs a CUDA device"


def test_intervals_are_students_and_said_in_words_where_they_are_no_number() -> None:
    drawn = np.random.default_rng(0).normal(3, 2, 5)
    low, high = stats.t.interval(0.95, 4, drawn.mean(), stats.sem(drawn))
    assert interval_of(drawn.tolist(), PASS) == pytest.approx((low, high, drawn.mean()))
    assert str(Interval(2, 2)) == str(interval_of([2.0], PASS)) == "2" and str(Interval(1, 2)) == "1.5 ± 0.5"
    assert str(interval_of([1.0, math.nan, 2.0], PASS)) == str(interval_of([], PASS)) == "no number"


def test_a_claim_without_a_control_that_must_fail_is_none() -> None:
    with pytest.raises(AssertionError, match="both kinds"):
        Claim("some", "", "", ("a",), PASS, KNOWN[:1])
