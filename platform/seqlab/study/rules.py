"""Verdicts on measurements, by rules fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from seqlab.comparison.statistics import MOST_SEEDS, Estimate, mean

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
    ABOUT = "about the threshold"
    DEPENDS = "depends"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    NOT_MEASURED = "not measured here"
    NOT_TESTABLE = "not testable here"


class Interval(NamedTuple):
    """95% confidence interval of a mean over seeds, by Student's t, cut at the ends of what is possible.

    Attributes:
        mean: mean of the seeds; None = the middle.
    """

    low: float
    high: float
    mean: float | None = None

    def __str__(self) -> str:
        if math.isnan(self.low):
            return "no number"
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        if self.mean is not None and abs(self.mean - middle) > 1e-3 * half:
            return f"{self.mean:.4g} ({self.low:.4g} to {self.high:.4g})"
        return f"{middle:.4g} ± {half:.2g}" if half else f"{middle:.4g}"


@dataclass(frozen=True)
class Rule:
    """Range that must contain the confidence interval of a quantity.

    Attributes:
        quantity: description of the quantity, with its unit.
        low, high: bounds, inclusive; a claim is supported if the whole interval lies between them.
        beyond: margin; a claim is refuted if the whole interval lies outside the bounds by more than this.
        possible: least and greatest value that the quantity can take, such as (0, 1) of a share.
    """

    quantity: str
    low: float = -math.inf
    high: float = math.inf
    beyond: float = 0.0
    possible: tuple[float, float] = (-math.inf, math.inf)

    def judge(self, interval: Interval) -> Verdict:
        """Returns SUPPORTED, REFUTED, ABOUT if the interval lies within one margin, or INCONCLUSIVE if it straddles a
        bound or is NaN."""
        least, most = self.low - self.beyond, self.high + self.beyond
        if self.low <= interval.low and interval.high <= self.high:
            return Verdict.SUPPORTED
        if interval.high < least or interval.low > most:
            return Verdict.REFUTED
        if (least <= interval.low and interval.high <= self.low) or (
            self.high <= interval.low and interval.high <= most
        ):
            return Verdict.ABOUT
        return Verdict.INCONCLUSIVE

    def interval(self, estimate: Estimate) -> Interval:
        """Confidence interval of an estimate, cut at the ends of what is possible."""
        value, half = float(estimate.value), float(estimate.half_width)
        return Interval(max(value - half, self.possible[0]), min(value + half, self.possible[1]), value)

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
        measured: value of each seed, by case; NaN = a seed that has no number, because its model did not learn the task
            or because what is compared stands at a floor or a ceiling.
        needs: missing requirement of the measurement; "" = none.
    """
    if needs:
        return Judgement(Verdict.NOT_TESTABLE, (needs,), {}, {})
    intervals = {one.case: interval_of(measured[one.case], one.rule) for one in claim.controls}
    for control in claim.controls:
        interval, rule = interval_of(measured[control.case], control.rule), control.rule
        if (found := rule.judge(interval)) != control.expected:
            said = f"the control {control.case} must be {control.expected} and is {found}: {rule.quantity} {interval}"
            return Judgement(Verdict.INVALID, (said,), {}, intervals)
    seen = {case: [value for value in measured[case] if math.isfinite(value)] for case in claim.cases}
    intervals |= {case: interval_of(values, claim.rule) for case, values in seen.items()}
    cases, notes = dict[str, Verdict](), dict[str, str]()
    for case, values in seen.items():
        every = len(measured[case])
        cases[case] = _of_case(claim, values, every)
        remarks = [f"{len(values)} of {every} seeds have a number"] if 0 < len(values) < every else []
        remarks += [cost(claim.rule, values, every)] if cases[case] is Verdict.INCONCLUSIVE else []
        notes[case] = f"{case} = {intervals[case]}" + (f" ({', '.join(remarks)})" if remarks else "")
    told = tuple(_told(cases, notes))
    seeds = min(len(measured[name]) for name in intervals)
    if not claim.exact and seeds < FEWEST_SEEDS:
        too_few = f"{seeds} of the {FEWEST_SEEDS} seeds that a verdict needs"
        return Judgement(Verdict.INCONCLUSIVE, (too_few, *told), cases, intervals)
    return Judgement(_of_all(set(cases.values())), told, cases, intervals)


def interval_of(values: Sequence[float], rule: Rule) -> Interval:
    """Confidence interval of the mean. A single value is its own interval; NaN without values, or if one is not
    finite."""
    if not values or not all(map(math.isfinite, values)):
        return Interval(math.nan, math.nan)
    return Interval(values[0], values[0]) if len(values) == 1 else rule.interval(mean(values))


def cost(rule: Rule, values: Sequence[float], every: int) -> str:
    """Number of seeds that would decide a case, if mean, spread and the share of seeds that have a number stayed as
    those of the values, which so many of every seed have."""
    if len(values) < FEWEST_SEEDS:
        return f"{math.ceil(FEWEST_SEEDS * every / len(values))} for {FEWEST_SEEDS} of them"
    found = mean(values)
    spread = found.error * math.sqrt(len(values))
    for seeds in range(len(values) + 1, MOST_SEEDS + 1):
        verdict = rule.judge(rule.interval(Estimate(found.value, spread / math.sqrt(seeds), seeds - 1)))
        if verdict is not Verdict.INCONCLUSIVE:
            return f"{math.ceil(seeds * every / len(values))} such seeds: {verdict}"
    return f"more than {MOST_SEEDS:,} such seeds"


def _of_case(claim: Claim, values: Sequence[float], every: int) -> Verdict:
    """Verdict of a case by the values of those of every seed that have a number."""
    if not values:
        return Verdict.NOT_MEASURED
    if len(values) < every and len(values) < FEWEST_SEEDS and not claim.exact:
        return Verdict.INCONCLUSIVE
    return claim.rule.judge(interval_of(values, claim.rule))


def _of_all(verdicts: set[Verdict]) -> Verdict:
    """Verdict of a claim by those of its cases. A case that is not measured counts only if none is."""
    measured = verdicts - {Verdict.NOT_MEASURED}
    decided = measured - {Verdict.INCONCLUSIVE}
    if len(decided) > 1:
        return Verdict.DEPENDS
    if Verdict.INCONCLUSIVE in measured:
        return Verdict.INCONCLUSIVE
    return decided.pop() if decided else Verdict.NOT_MEASURED


def _told(cases: Mapping[str, Verdict], notes: Mapping[str, str]) -> Iterator[str]:
    """Yields one text per verdict, listing its cases with their numbers."""
    several = len(set(cases.values())) > 1
    for verdict in (
        *(Verdict.SUPPORTED, Verdict.REFUTED, Verdict.ABOUT),
        *(Verdict.INCONCLUSIVE, Verdict.NOT_MEASURED),
    ):
        if named := [notes[name] for name, of in cases.items() if of is verdict]:
            yield (f"{verdict}: " if several else "") + "; ".join(named)
