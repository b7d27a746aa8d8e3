"""Measurements of masks, on models whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from seqlab.studies.masks import LENGTH, MIXERS, SYMBOLS, before, changes, entropy, model_of, whole

TOKENS = torch.randint(SYMBOLS, (5, LENGTH), generator=torch.Generator().manual_seed(0))


def peeks(tokens: Tensor) -> tuple[Tensor, None]:
    """Predicts the next character, and the first one at the last place."""
    following = torch.cat((tokens[:, 1:], torch.zeros_like(tokens[:, :1])), 1)
    return 50.0 * torch.nn.functional.one_hot(following, SYMBOLS), None


def test_one_that_peeks_knows_all_and_writes_nothing() -> None:
    assert whole(peeks, TOKENS) < 1e-6 and before(peeks, TOKENS) > 40
    assert changes(peeks, TOKENS) > 0


@pytest.mark.parametrize("name", MIXERS)
def test_masked_models_do_not_see_what_comes_later(name: str) -> None:
    found = changes(model_of(MIXERS[name]), TOKENS)
    assert found > -3 if name == "attention, not masked" else found < -12


def test_entropy_by_hand() -> None:
    assert entropy(torch.tensor([[0, 0, 2, 2]])) == pytest.approx(math.log(2))
