"""Classifiers: padding changes nothing, order counts where it should, pooling by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from contracts.subjects import randomized
from seqlab.attention import Attention, Bidirectional
from seqlab.models import BagOfWords, Classifier, Encoder
from seqlab.models.classifier import pooled
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from tolerances import assert_close

BOTH_WAYS = partial(Attention, num_heads=2, pattern=Bidirectional)


def classifier(mixer: Any, positions: Any, pool: Any) -> Classifier:
    encoder = partial(Encoder, mixer=mixer, d_model=16, num_layers=2, positions=positions)
    return Classifier(13, 4, 20, encoder=encoder, pool=pool)


MODELS = {
    "attention": lambda: classifier(BOTH_WAYS, RoPE, "mean"),
    "attention-no-positions": lambda: classifier(BOTH_WAYS, NoPositions, "mean"),
    "gru-both-ways": lambda: classifier(partial(GRU, bidirectional=True), NoPositions, "first"),
    "gru": lambda: classifier(GRU, NoPositions, "last"),
    "bag-of-words": lambda: BagOfWords(13, 4, 20, d_model=16),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_on_either_side_changes_nothing(name: str) -> None:
    model = randomized(MODELS[name]())
    tokens = torch.randint(13, (3, 7))
    expected = model(tokens)
    assert expected.shape == (3, 4) and expected.std() > 0.05
    for left, right in ((3, 0), (0, 4), (2, 2)):
        padded = torch.cat((torch.randint(13, (3, left)), tokens, torch.randint(13, (3, right))), dim=1)
        mask = torch.cat((torch.zeros(3, left), torch.ones(3, 7), torch.zeros(3, right)), dim=1).bool()
        assert_close(model(padded, pad_mask=mask), expected)


@pytest.mark.parametrize("name", MODELS)
def test_order_counts_but_in_a_bag(name: str) -> None:
    model = randomized(MODELS[name]())
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    moved = (model(tokens) - model(tokens.flip(1))).abs().max()
    assert (moved < 1e-12) == (name in ("bag-of-words", "attention-no-positions"))


def test_pooling_by_hand() -> None:
    x = torch.arange(8.0).view(1, 4, 2)
    mask = torch.tensor([[False, True, True, False]])
    assert pooled(x, mask, "mean").tolist() == [[3, 4]]
    assert pooled(x, mask, "first").tolist() == [[2, 3]]
    assert pooled(x, mask, "last").tolist() == [[4, 5]]
    assert pooled(x, None, "last").tolist() == [[6, 7]]
    assert pooled(x, ~mask & False, "mean").tolist() == [[0, 0]]
