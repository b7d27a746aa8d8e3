"""Verdicts on measurements, by rules fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from seqlab.comparison.statistics import mean

FEWEST_SEEDS = 3
LECTURE = {
    "L0": '"The Speed Revolution"',
    "L1": "a university course's lecture on attention and Transformers",
    "L2": '"LLM architectures: attention mechanism and Transformers"',
    "L3": "a discovery worksheet with exercises",
    "L4": "a chapter on the limits of recurrence",
}
LECTURES = (
    "L0 to L4 are five lectures on the way from RNNs to Transformers: "
    f"{', '.join(f'{name} {title}' for name, title in LECTURE.items())}. We have numbered what they claim."
)
"""Note on the lectures cited as sources of claims."""


class Verdict(StrEnum):
    SUPPORTED = "supported"
    REFUTED = "refuted"
    DEPENDS = "depends"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    NOT_TESTABLE = "not testable here"


class Interval(NamedTuple):
    """95% confidence interval over seeds, by Student's t."""

    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return "no number"
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return f"{middle:.4g} ± {half:.2g}" if half else f"{middle:.4g}"


@dataclass(frozen=True)
class Rule:
    """Range that must contain the confidence interval of a quantity.

    Attributes:
        quantity: description of the quantity, with its unit.
        low, high: bounds, inclusive; a claim is supported if the whole interval lies between them.
        beyond: margin; a claim is refuted if the whole interval lies outside the bounds by more than this.
    """

    quantity: str
    low: float = -math.inf
    high: float = math.inf
    beyond: float = 0.0

    def judge(self, interval: Interval) -> Verdict:
        """Returns SUPPORTED, REFUTED, or INCONCLUSIVE if the interval straddles a bound or is NaN."""
        if self.low <= interval.low and interval.high <= self.high:
            return Verdict.SUPPORTED
        if interval.high < self.low - self.beyond or interval.low > self.high + self.beyond:
            return Verdict.REFUTED
        return Verdict.INCONCLUSIVE

    def __str__(self) -> str:
        edges = [f"at least {self.low:g}"] if math.isfinite(self.low) else []
        edges += [f"at most {self.high:g}"] if math.isfinite(self.high) else []
        text = f"{self.quantity} is {' and '.join(edges)}"
        beyond = [f"below {self.low - self.beyond:g}"] if math.isfinite(self.low) else []
        beyond += [f"above {self.high + self.beyond:g}"] if math.isfinite(self.high) else []
        return f"{text}; refuted {' or '.join(beyond)}" if self.beyond else text


@dataclass(frozen=True)
class Control:
    """A case with a known outcome. If the outcome differs, the study does not measure what it claims to.

    Attributes:
        case: measured case.
        rule: rule of this control.
        holds: True if the rule must be supported, False if it must be refuted.
        why: reason for the expected outcome, in one sentence.
    """

    case: str
    rule: Rule
    holds: bool
    why: str

    @property
    def expected(self) -> Verdict:
        return Verdict.SUPPORTED if self.holds else Verdict.REFUTED


@dataclass(frozen=True)
class Claim:
    """A statement and the rule that decides it.

    Attributes:
        key: unique key within the study.
        says: the claim in one sentence.
        source: source of the claim.
        cases: measured cases, each judged separately.
        rule: rule for each case.
        controls: at least one control that must pass and one that must fail.
        exact: True if the measurement does not depend on a seed, so that one seed suffices.
    """

    key: str
    says: str
    source: str
    cases: tuple[str, ...]
    rule: Rule
    controls: tuple[Control, ...]
    exact: bool = False

    def __post_init__(self) -> None:
        assert {control.holds for control in self.controls} == {True, False}, f"{self.key} needs both kinds of control"


@dataclass(frozen=True)
class Judgement:
    """Verdict on a claim.

    Attributes:
        told: reasons with numbers, one text per verdict among the cases.
        cases: verdict of each case.
        intervals: interval of each case and each control.
    """

    verdict: Verdict
    told: tuple[str, ...]
    cases: Mapping[str, Verdict]
    intervals: Mapping[str, Interval]

    @property
    def reason(self) -> str:
        return "; ".join(self.told)


def judge(claim: Claim, measured: Mapping[str, Sequence[float]], needs: str = "") -> Judgement:
    """Judges a claim.

    Args:
        measured: value of each seed, by case.
        needs: missing requirement of the measurement; "" = none.
    """
    if needs:
        return Judgement(Verdict.NOT_TESTABLE, (needs,), {}, {})
    names = dict.fromkeys([*claim.cases, *(control.case for control in claim.controls)])
    intervals = {name: interval_of(measured[name]) for name in names}
    cases = {name: claim.rule.judge(intervals[name]) for name in claim.cases}
    verdict, told = _verdict(claim, intervals, cases, min(len(measured[name]) for name in names))
    return Judgement(verdict, told, cases, intervals)


def interval_of(values: Sequence[float]) -> Interval:
    """Confidence interval of the mean. A single value is its own interval; NaN if any value is not finite."""
    if not all(map(math.isfinite, values)):
        return Interval(math.nan, math.nan)
    if len(values) == 1:
        return Interval(values[0], values[0])
    estimate = mean(values)
    return Interval(float(estimate.value - estimate.half_width), float(estimate.value + estimate.half_width))


def _verdict(
    claim: Claim, intervals: Mapping[str, Interval], cases: Mapping[str, Verdict], seeds: int
) -> tuple[Verdict, tuple[str, ...]]:
    for control in claim.controls:
        if (found := control.rule.judge(intervals[control.case])) != control.expected:
            interval, rule = intervals[control.case], control.rule
            said = f"the control {control.case} must be {control.expected} and is {found}: {rule.quantity} {interval}"
            return Verdict.INVALID, (said,)
    told = tuple(_told(cases, intervals))
    if not claim.exact and seeds < FEWEST_SEEDS:
        return Verdict.INCONCLUSIVE, (f"{seeds} of the {FEWEST_SEEDS} seeds that a verdict needs", *told)
    verdicts = set(cases.values())
    if verdicts >= {Verdict.SUPPORTED, Verdict.REFUTED}:
        return Verdict.DEPENDS, told
    return (verdicts.pop() if len(verdicts) == 1 else Verdict.INCONCLUSIVE), told


def _told(cases: Mapping[str, Verdict], intervals: Mapping[str, Interval]) -> Iterator[str]:
    """Yields one text per verdict, listing its cases with their numbers."""
    for verdict in (Verdict.SUPPORTED, Verdict.REFUTED, Verdict.INCONCLUSIVE):
        if named := [f"{name} = {intervals[name]}" for name, of in cases.items() if of == verdict]:
            yield (f"{verdict}: " if len(set(cases.values())) > 1 else "") + "; ".join(named)
