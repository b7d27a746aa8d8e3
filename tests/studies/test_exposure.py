"""Measurements of `exposure`, on writers whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch

from seqlab.studies.copying import sentences
from seqlab.studies.exposure import WRONG, Planted, gap, planted_batch, spelt, thrown


def test_a_writer_that_does_not_look_back_has_no_gap() -> None:
    texts = sentences([10], 400, seed=0)
    assert spelt(planted_batch(texts).targets) == texts
    found, tokens = gap(Planted(lost=False, seed=0), planted_batch(texts), words=10)
    assert found == [0.0] * 10
    assert 0.07 < (tokens != planted_batch(texts).targets).float().mean() < 0.13


def test_a_lost_writer_has_the_gap_of_its_errors_so_far() -> None:
    batch = planted_batch(sentences([10], 4000, seed=0))
    found, _ = gap(Planted(lost=True, seed=0), batch, words=10)
    right, wrong = (
        math.log(15 + math.exp(4)) - 4,
        math.log(14 + math.exp(4) + math.exp(5)) - 4,
    )
    known = 0.9 * right + 0.1 * wrong
    expected = [(1 - 0.9**t) * (math.log(16) - known) for t in range(10)]
    assert found[0] == 0 and found == pytest.approx(expected, abs=0.08)
    assert torch.tensor(found).diff().min() > 0


def test_one_wrong_word_throws_only_a_writer_that_looks_back() -> None:
    batch = planted_batch(sentences([10], 4000, seed=0))
    assert thrown(Planted(lost=False, seed=0), batch, words=10) == [0.0] * (10 - WRONG)
    right = 0.9 * (math.log(15 + math.exp(4)) - 4) + 0.1 * (math.log(14 + math.exp(4) + math.exp(5)) - 4)
    expected = [math.log(16) - right] * (10 - WRONG)
    assert thrown(Planted(lost=True, seed=0), batch, words=10) == pytest.approx(expected, abs=0.08)
