"""Comparisons of models that add; one that has not learned to add is not judged."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from seqlab.studies.lengths import by_length
from seqlab.studies.rules import Verdict, judge
from seqlab.studies.sums import ANY, ENCODINGS, LONGEST, OF_ANOTHER, ORACLE, RECURRENCES, TRAINED, Sums, compared
from seqlab.tracking.runs import TrackedRun
from seqlab_data.synthetic import Addition

RUN: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]


def to(length: int) -> list[float]:
    """Correct up to a length, and wrong beyond it."""
    return [float(at <= length) for at in range(1, LONGEST + 1)]


def judged(lengths: Mapping[str, int]) -> dict[str, Verdict]:
    """The verdicts where all models are right at every length but these, to theirs."""
    named = dict.fromkeys([arm.name for arm in Sums().arms("cpu")], LONGEST) | dict(lengths)
    shares = {name: to(at) for name, at in named.items()} | {OF_ANOTHER: to(0), ORACLE: to(LONGEST)}
    values = {name: [value] * 3 for name, value in compared(shares).items()}
    return {claim.key: judge(claim, values).verdict for claim in Sums.claims}


def test_every_encoding_is_asked() -> None:
    assert {arm.name for arm in Sums().arms("cpu")} == {*ENCODINGS, *RECURRENCES}
    assert set(judged({}).values()) == {Verdict.SUPPORTED}


def test_who_ends_with_the_trained_numbers_is_refuted_and_who_has_not_learned_is_not_judged() -> None:
    all_end = judged(dict.fromkeys(ENCODINGS, TRAINED))
    assert all_end["any-length"] == Verdict.REFUTED and all_end["recurrence"] == Verdict.SUPPORTED
    assert judged({"RoPE": TRAINED})["any-length"] == Verdict.DEPENDS
    assert judged({"RoPE": TRAINED - 1})["any-length"] == Verdict.INCONCLUSIVE
    assert judged({"GRU": TRAINED - 1})["recurrence"] == Verdict.INCONCLUSIVE
    assert set(judged({ANY: TRAINED - 1}).values()) == {Verdict.INVALID}, "nobody is known to have learned the task"


def test_one_that_adds_and_not_for_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Addition(lowest_first=True)

    def model(tokens: Tensor) -> tuple[Tensor, None]:
        said = torch.zeros_like(tokens)
        for row, given in zip(said, tokens.tolist(), strict=True):
            separator = given.index(2)
            length = (separator - 2) // 2
            first, second = (
                sum((digit - 3) * 10**at for at, digit in enumerate(given[start : start + length]))
                for start in (1, length + 2)
            )
            row[separator:] = torch.tensor([int(digit) + 3 for digit in f"{first + second:0{length + 1}d}"[::-1]])
        return torch.nn.functional.one_hot(said, 20).float(), None

    loaded = SimpleNamespace(model=model, datamodule=SimpleNamespace(task=task))
    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: loaded)
    assert by_length(RUN, 0, LONGEST) == [1.0] * LONGEST
    assert max(by_length(RUN, 0, LONGEST, of_another=True)[1:]) < 0.1
