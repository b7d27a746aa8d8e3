"""Measurements of `bottleneck` and `look-up`, on writers and layers whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.attention import AdditiveAttention
from seqlab.studies.bottleneck import (
    ATTENTION,
    BEYOND,
    FIRST,
    HALF,
    NONE,
    ONE_IN_FOUR,
    OTHERS,
    WITHIN,
    first_six,
    growths,
    one_in_four_lost,
)
from seqlab.studies.copying import bleu, sentences
from seqlab.studies.look_up import drawn, not_convex, of_memory

LENGTHS = range(4, 13)


def test_sentences_are_decided_by_their_seed_and_have_their_lengths() -> None:
    texts = sentences([4, 6], 40, seed=3)
    assert texts == sentences([4, 6], 40, seed=3) != sentences([4, 6], 40, seed=4)
    assert {len(text.split()) for text in texts} == {4, 6}


def test_the_planted_writers_lose_by_length_and_alike() -> None:
    texts = {length: sentences([length], 20, seed=0) for length in LENGTHS}
    alike = [bleu(one_in_four_lost(some), some) for some in texts.values()]
    assert alike == pytest.approx([75] * len(LENGTHS))
    by_length = [bleu([first_six(text) for text in some], some) for some in texts.values()]
    assert by_length[:3] == pytest.approx([100] * 3) and by_length == sorted(by_length, reverse=True)
    assert by_length[-1] == pytest.approx(100 * math.prod((6 - n) / (12 - n) for n in range(4)) ** 0.25)


def test_growth_is_that_of_the_lead() -> None:
    line = {length: 100.0 - 3 * length for length in range(4, 21)}
    flat = dict.fromkeys(line, 90.0)
    scores = {NONE: line, ATTENTION: flat, FIRST: line, ONE_IN_FOUR: flat, OTHERS: line}
    found = growths(scores, {WITHIN: range(4, 13), BEYOND: range(12, 21)})
    assert found[f"{ATTENTION}, {WITHIN}"] == pytest.approx(3) == found[FIRST]
    assert found[f"{ATTENTION} alone, {BEYOND}"] == pytest.approx(0) == found[ONE_IN_FOUR]
    assert found[ATTENTION] == pytest.approx(90) and found[OTHERS] == pytest.approx(76)
    assert math.isnan(found[f"twice the vector, {WITHIN}"])
    found = growths(scores | {HALF: {n: 50.0 - 5 * n for n in line}}, {WITHIN: range(4, 13), BEYOND: range(12, 21)})
    assert found[f"twice the vector, {WITHIN}"] == pytest.approx(2)


class Leaky(AdditiveAttention):
    """Shows weights that sum to 1, and looks at the memory with less."""

    def _next(self, x_t: Tensor, h: Tensor, state: dict[str, Any]) -> tuple[Tensor, Tensor]:
        return super()._next(x_t, h, state | {"memory_v": state["memory_v"] / state["memory_v"].shape[1]})


@torch.no_grad()
def test_a_layer_is_asked_and_not_only_the_weights_that_it_shows() -> None:
    torch.manual_seed(0)
    assert not_convex(torch.tensor([[[[0.5, 0.4]]]])) == pytest.approx(0.1)
    assert not_convex(torch.tensor([[[[1.25, -0.25]]]])) == pytest.approx(0.25)
    assert of_memory(drawn(AdditiveAttention)) < 1e-12
    assert of_memory(drawn(Leaky)) > 1e-3
