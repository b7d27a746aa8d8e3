"""The tagger: PyTorch's own layers give the same logits, and padding changes nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from contracts.subjects import randomized
from seqlab.attention import Attention, Bidirectional
from seqlab.models import Encoder, Tagger
from seqlab.nn import Block, NoFeedForward, NoResidual
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from tolerances import assert_close


def tagger(mixer: Any, positions: Any, **options: Any) -> Tagger:
    encoder = partial(Encoder, mixer=mixer, d_model=16, positions=positions, **options)
    return randomized(Tagger(13, 4, 20, encoder=encoder))


BOTH_WAYS = partial(GRU, bidirectional=True)
MODELS = {
    "attention": lambda: tagger(partial(Attention, num_heads=2, pattern=Bidirectional), RoPE, num_layers=2),
    "gru": lambda: tagger(BOTH_WAYS, NoPositions, num_layers=2),
}


def test_it_is_pytorchs_embedding_gru_and_linear() -> None:
    bare = partial(Block, norm_place="none", ffn=NoFeedForward, residual=NoResidual)
    ours: Any = tagger(BOTH_WAYS, NoPositions, num_layers=1, block=bare)
    theirs = nn.GRU(16, 8, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(ours.encoder.stack.blocks[0].mixer.cell.state_dict())
    tokens = torch.randint(13, (3, 7))
    embedded = 16**0.5 * nn.functional.embedding(tokens, ours.encoder.embedding.weight)
    expected = nn.functional.linear(theirs(embedded)[0], ours.head.weight, ours.head.bias)
    assert expected.shape == (3, 7, 4) and expected.std() > 0.2
    assert_close(ours(tokens), expected)


@pytest.mark.parametrize("name", MODELS)
def test_padding_on_either_side_changes_nothing(name: str) -> None:
    model = MODELS[name]()
    tokens = torch.randint(13, (3, 7))
    expected = model(tokens)
    for left, right in ((3, 0), (0, 4), (2, 2)):
        padded = torch.cat((torch.randint(13, (3, left)), tokens, torch.randint(13, (3, right))), dim=1)
        mask = torch.cat((torch.zeros(3, left), torch.ones(3, 7), torch.zeros(3, right)), dim=1).bool()
        assert_close(model(padded, pad_mask=mask)[:, left : left + 7], expected)


@pytest.mark.parametrize("name", MODELS)
def test_each_tag_knows_the_words_before_and_after(name: str) -> None:
    model = MODELS[name]()
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    for changed in (0, 4):
        other = tokens.clone()
        other[0, changed] = 9
        moved = (model(other) - model(tokens)).abs().amax(dim=-1)[0]
        assert (moved > 1e-6).all()
