"""Measurements at each length, on models whose answer is known, and the verdicts of the studies that compare them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from seqlab.study.rules import Verdict, judge
from seqlab.study.study import Study
from seqlab.tracking.runs import TrackedRun
from seqlab_data.synthetic import Addition, Copy, Reverse
from seqlab_studies import long_dates, longer, state_tracking, sums
from seqlab_studies.length import apart, distances
from seqlab_studies.lib import lengths
from seqlab_studies.lib.lengths import LONGEST, by_length, reach
from seqlab_studies.long_dates import BEYOND, SHORTEST, LongDates
from seqlab_studies.longer import ADDED, AGAINST, CONCATENATED, LEARNT, TWICE, Longer
from seqlab_studies.state_tracking import COUNTED, LAST, LENGTHS, ONE, StateTracking
from seqlab_studies.sums import ANY, ENCODINGS, RECURRENCES, Sums

RUN: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]
S, R = Verdict.SUPPORTED, Verdict.REFUTED
Load = Callable[[Callable[[list[int]], list[int]], Any], None]


@pytest.fixture(name="load")
def _load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Has a run's model say what a function of the question answers, after the separator."""

    def load(answer: Callable[[list[int]], list[int]], task: Any) -> None:
        def model(tokens: Tensor) -> tuple[Tensor, None]:
            said = torch.zeros_like(tokens)
            for row, given in zip(said, tokens.tolist(), strict=True):
                separator = given.index(2)
                answered = answer(given[1:separator])[: len(row) - separator]
                row[separator : separator + len(answered)] = torch.tensor(answered)
            return one_hot(said, 20).float(), None

        loaded = SimpleNamespace(model=model, datamodule=SimpleNamespace(task=task))
        monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: loaded)

    return load


@pytest.mark.parametrize("limit", [lengths.TRAINED - 1, lengths.TRAINED, lengths.TRAINED + 1, LONGEST])
def test_the_reach_of_one_that_copies_to_a_length(limit: int, load: Load) -> None:
    load(lambda question: question if len(question) <= limit else [], Copy(8))
    share = by_length(RUN, 0, LONGEST)
    assert share == [float(length <= limit) for length in range(1, LONGEST + 1)]
    assert reach(share, lengths.TRAINED) == limit / lengths.TRAINED
    assert max(by_length(RUN, 0, LONGEST, of_another=True)[2:]) < 0.1, "another string is not copied by chance"


def added(question: list[int]) -> list[int]:
    """The sum, its lowest digit first, of two numbers written so."""
    half = len(question) // 2
    numbers = (
        sum((digit - 3) * 10**at for at, digit in enumerate(part)) for part in (question[:half], question[half + 1 :])
    )
    return [int(digit) + 3 for digit in f"{sum(numbers):0{half + 1}d}"[::-1]]


@pytest.mark.parametrize(
    ("answer", "task"), [(lambda question: question[::-1], Reverse(8)), (added, Addition(lowest_first=True))]
)
def test_one_that_knows_the_answer_and_not_that_of_another_question(answer: Any, task: Any, load: Load) -> None:
    load(answer, task)
    assert by_length(RUN, 0, LONGEST) == [1.0] * LONGEST
    assert max(by_length(RUN, 0, LONGEST, of_another=True)[2:]) < 0.1


def test_distances_and_nearness_by_hand() -> None:
    at = torch.arange(512, dtype=torch.float64)
    turned = torch.stack((at.sin(), at.cos()), 1)
    assert distances(turned) < -12 and distances(turned * (1 + at / 512).unsqueeze(1)) > -2
    assert apart(at.unsqueeze(1)) == pytest.approx(math.log10(1 / (513 / 3)))
    assert apart(torch.cat((turned, turned))) < -12


@pytest.mark.parametrize(("limit", "beyond"), [(state_tracking.TRAINED, 0.5), (LENGTHS[-1], 1.0)])
def test_one_that_counts_so_far(limit: int, beyond: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the parity of the first so many bits."""

    def model(tokens: Tensor) -> tuple[Tensor, None]:
        odd = (tokens[:, 1 : limit + 1] == ONE).sum(1) % 2
        return one_hot(odd + 3, 5).float().unsqueeze(1), None

    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: SimpleNamespace(model=model))
    values = StateTracking().measure("cpu", 0, {"GRU": RUN}).values
    assert values["GRU, to 16"] == 1 and values["GRU, beyond 16"] == pytest.approx(beyond, abs=0.05)
    assert values[COUNTED] == 1.0 and values[LAST] == pytest.approx(0.5, abs=0.05)


def verdicts(study: type[Study], values: Mapping[str, float]) -> dict[str, Verdict]:
    of_seeds = {name: [value] * 3 for name, value in values.items()}
    return {claim.key: judge(claim, of_seeds).verdict for claim in study.claims}


def to(length: int, longest: int = LONGEST) -> list[float]:
    """Correct up to a length, and wrong beyond it."""
    return [float(at <= length) for at in range(1, longest + 1)]


def names(study: Study) -> list[str]:
    return [arm.name for arm in study.arms("cpu")]


def judged(study: Study, module: Any, changed: Mapping[str, int]) -> dict[str, Verdict]:
    """The verdicts where all models but these are right at every length, and these to theirs."""
    ends = dict.fromkeys(names(study), module.LONGEST) | dict(changed)
    shares = {name: to(at, module.LONGEST) for name, at in ends.items()}
    fixed = {module.OF_ANOTHER: to(0, module.LONGEST), module.ORACLE: to(module.LONGEST, module.LONGEST)}
    return verdicts(type(study), module.compared(shares | fixed))


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, dict.fromkeys(("train-short", "any-length", "recurrence", "combined"), S)),
        ({"ALiBi": 0, "T5Bias": 0}, {"train-short": R, "any-length": S}),
        ({"ALiBi": 0}, {"train-short": Verdict.DEPENDS}),
        ({"ALiBi": -1}, {"train-short": Verdict.INVALID}),
        ({"GRU": 0}, {"recurrence": R}),
        ({"Learned": 0}, {"combined": Verdict.DEPENDS}),
        ({"Learned": 0, "Learned, concatenated": 0}, {"combined": S}),
        (dict.fromkeys((*ADDED, *CONCATENATED.values(), TWICE), 0), {"combined": Verdict.NOT_MEASURED}),
        ({"Learned, concatenated": 2 - lengths.TRAINED}, {"combined": Verdict.INVALID}),
    ],
)
def test_models_that_end_near_the_trained_length(changed: dict[str, int], found: dict[str, Verdict]) -> None:
    """One that stops there is refuted, and one that has not learnt it is invalid."""
    ends = {name: lengths.TRAINED + more for name, more in changed.items()}
    said = judged(Longer(), longer, ends)
    assert found.items() <= said.items()
    assert changed or set(said.values()) == {S}


def test_longer_compared_by_hand() -> None:
    shares = {name: to(lengths.TRAINED + 3) for name in names(Longer())}
    shares |= {lengths.OF_ANOTHER: to(0), lengths.ORACLE: to(LONGEST)}
    shares["Learned, concatenated"] = [1.0, 0.7, *to(lengths.TRAINED)[2:]]
    values = longer.compared(shares)
    assert values["Learned, added against concatenated"] == pytest.approx(0.5)
    assert values["Learned, concatenated learnt"] == 0.7
    assert values[f"{TWICE}, against the first"] == 0 and values[AGAINST] == 2
    assert LEARNT.low == 0.9


def test_sums_beyond_the_trained_numbers() -> None:
    """One that ends with them is refuted, and one that has not learned is not judged."""
    assert set(names(Sums())) == {*ENCODINGS, *RECURRENCES}

    def found(more: int, *ended: str) -> dict[str, Verdict]:
        return judged(Sums(), sums, dict.fromkeys(ended, sums.TRAINED + more))

    assert set(found(0).values()) == {S}
    assert found(0, *ENCODINGS) | {"any-length": R, "recurrence": S} == found(0, *ENCODINGS)
    assert found(0, "RoPE")["any-length"] == Verdict.DEPENDS
    assert found(-1, "RoPE")["any-length"] == found(-1, "GRU")["recurrence"] == S, "the others are judged"
    assert found(-1, *RECURRENCES) == {"any-length": S, "recurrence": Verdict.NOT_MEASURED}
    assert set(found(-1, ANY).values()) == {Verdict.INVALID}, "nobody is known to have learned the task"


DATES = range(SHORTEST, long_dates.LONGEST + 1)


def shares(short: float, long: float) -> dict[int, float]:
    return {length: long if length in BEYOND else short for length in DATES}


def dates_judged(short: float, long: float, *changed: str) -> dict[str, Verdict]:
    named = dict.fromkeys(names(LongDates()), shares(1.0, 1.0)) | {long_dates.OF_ANOTHER: shares(0.0, 0.0)}
    return verdicts(LongDates, long_dates.compared(named | dict.fromkeys(changed, shares(short, long))))


@pytest.mark.slow
def test_verdicts_of_long_dates_on_all_sides() -> None:
    first, *_ = encodings = long_dates.ENCODINGS
    assert set(dates_judged(1.0, 1.0).values()) == {S}
    assert dates_judged(1.0, 0.5, *encodings)["any-length"] == R
    assert dates_judged(1.0, 0.9, *encodings)["any-length"] == Verdict.ABOUT
    assert dates_judged(1.0, 0.9, first)["any-length"] == Verdict.DEPENDS
    assert dates_judged(0.85, 0.84, first)["any-length"] == S
    assert dates_judged(1.0, 0.1, *long_dates.RECURRENCES)["recurrence"] == R
    assert dates_judged(0.6, 0.6, *encodings) == {"any-length": Verdict.NOT_MEASURED, "recurrence": S}
    broken = ((1.0, 0.3, long_dates.ALL), (0.7, 0.7, long_dates.ANY), (1.0, 1.0, long_dates.OF_ANOTHER))
    for short, long, control in broken:
        assert set(dates_judged(short, long, control).values()) == {Verdict.INVALID}, control


@pytest.mark.slow
def test_dates_that_are_tested() -> None:
    train: Sequence[tuple[str, str]] = long_dates.pairs("train")
    words = {word for source, _ in train if len(source) <= long_dates.TRAINED for word in source.split()}
    trained = {target for _, target in train}
    first, second = long_dates.dates_by_length(0), long_dates.dates_by_length(1)
    assert list(first) == list(DATES) and min(map(len, first.values())) > 20
    for length, of in first.items():
        for source, target in of:
            assert len(source) == length and target not in trained
            assert all(word in words for word in source.split() if word.isalpha())
    assert not {pair for of in first.values() for pair in of} >= {pair for of in second.values() for pair in of}


def test_shares_of_long_dates_by_hand() -> None:
    tested = {13: [("a", "x"), ("b", "y")], 14: [("c", "z")]}
    assert long_dates.shares_of(["x", "x", "z"], ["x", "y", "z"], tested) == {13: 0.5, 14: 1.0}
    assert long_dates.compared({"any": shares(0.9, 0.45)}) == pytest.approx({"any": 0.5, "any, short": 0.9})
    assert long_dates.compared({long_dates.OF_ANOTHER: shares(0, 0)})[long_dates.OF_ANOTHER] == 0
    assert math.isnan(long_dates.compared({"any": shares(0.5, 0.5)})["any"])


def test_figures_of_long_dates_have_their_models() -> None:
    points = [
        {"model": name, "length": length, "right": 0.5, "seed": 0} for name in names(LongDates()) for length in DATES
    ]
    for claim in LongDates.claims:
        drawn = LongDates().figure(claim, points).to_dict()
        assert max(len(rows) for rows in drawn["datasets"].values()) >= 2 * len(DATES)
