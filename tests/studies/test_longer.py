"""Comparisons of models beyond the trained lengths, and scores against a question's own answer or another's."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.studies.length import LONGEST, OF_ANOTHER, ORACLE, TRAINED
from seqlab.studies.lengths import by_length
from seqlab.studies.longer import AGAINST, LEARNT, TWICE, Longer, compared
from seqlab.studies.rules import Verdict, judge
from seqlab.tracking.runs import TrackedRun
from seqlab_data.synthetic import Addition, Reverse

RUN: TrackedRun = SimpleNamespace(id="any")  # type: ignore[assignment]
NAMES = [arm.name for arm in Longer().arms("cpu")]


def to(length: int) -> list[float]:
    """Correct up to a length, and wrong beyond it."""
    return [float(at <= length) for at in range(1, LONGEST + 1)]


def judged(lengths: Mapping[str, int]) -> dict[str, Verdict]:
    """The verdicts where all models reach twice the trained length but these."""
    named = dict.fromkeys(NAMES, LONGEST) | dict(lengths)
    shares = {name: to(at) for name, at in named.items()} | {OF_ANOTHER: to(0), ORACLE: to(LONGEST)}
    values = {name: [value] * 3 for name, value in compared(shares).items()}
    return {claim.key: judge(claim, values).verdict for claim in Longer.claims}


def test_all_go_on() -> None:
    assert set(judged({}).values()) == {Verdict.SUPPORTED}


def test_who_stops_at_the_trained_length_is_refuted_and_who_has_not_learnt_is_invalid() -> None:
    found = judged({"ALiBi": TRAINED, "T5Bias": TRAINED})
    assert found["train-short"] == Verdict.REFUTED and found["any-length"] == Verdict.SUPPORTED
    assert judged({"ALiBi": TRAINED})["train-short"] == Verdict.DEPENDS
    assert judged({"ALiBi": TRAINED - 1})["train-short"] == Verdict.INVALID
    assert judged({"GRU": TRAINED})["recurrence"] == Verdict.REFUTED
    assert judged({"Learned": TRAINED})["combined"] == Verdict.DEPENDS
    assert judged({"Learned, concatenated": 2})["combined"] == Verdict.INVALID


def test_compared_by_hand() -> None:
    shares = {name: to(TRAINED + 3) for name in NAMES} | {OF_ANOTHER: to(0), ORACLE: to(LONGEST)}
    shares["Learned, concatenated"] = [1.0, 0.7, *to(TRAINED)[2:]]
    values = compared(shares)
    assert values["Learned, added against concatenated"] == pytest.approx(0.5)
    assert values["Learned, concatenated learnt"] == 0.7
    assert values[TWICE] == 0 and values[AGAINST] == 2
    assert LEARNT.low == 0.9


@pytest.mark.parametrize("task", [Reverse(8), Addition(lowest_first=True)])
def test_one_that_knows_the_answer_and_not_that_of_another_question(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(tokens: Tensor) -> tuple[Tensor, None]:
        said = torch.zeros_like(tokens)
        for row, given in zip(said, tokens.tolist(), strict=True):
            separator = given.index(2)
            question = given[1:separator]
            if isinstance(task, Reverse):
                answer = question[::-1]
            else:
                half = question.index(task.plus)
                first, second = (
                    sum((digit - 3) * 10**at for at, digit in enumerate(part))
                    for part in (question[:half], question[half + 1 :])
                )
                answer = [int(digit) + 3 for digit in f"{first + second:0{half + 1}d}"[::-1]]
            row[separator:] = torch.tensor(answer)
        return torch.nn.functional.one_hot(said, 20).float(), None

    loaded = SimpleNamespace(model=model, datamodule=SimpleNamespace(task=task))
    monkeypatch.setattr("seqlab.trained.load.load_run", lambda _: loaded)
    assert by_length(RUN, 0, LONGEST) == [1.0] * LONGEST
    assert max(by_length(RUN, 0, LONGEST, of_another=True)[2:]) < 0.1
