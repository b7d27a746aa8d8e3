"""Classifiers and taggers of tokens and of features: padding changes nothing, order counts where it should."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.subjects import randomized
from seqlab.attention import Attention, Bidirectional
from seqlab.models import BagOfWords, Classifier, Encoder, EncoderDecoder, Tagger
from seqlab.models.classifier import pooled, prepended
from seqlab.nn import Block, NoFeedForward, NoResidual
from seqlab.positions import Learned, NoPositions, RoPE
from seqlab.recurrence import GRU, Mamba
from tolerances import assert_close

ATTENTION = partial(Attention, num_heads=2, pattern=Bidirectional)
BOTH_WAYS = partial(GRU, bidirectional=True)


def encoder(mixer: Any, positions: Any = NoPositions, **options: Any) -> Any:
    return partial(Encoder, mixer=mixer, d_model=16, positions=positions, **{"num_layers": 2} | options)


def classifier(pool: Any, mixer: Any, positions: Any = NoPositions) -> Any:
    return partial(Classifier, 13, 4, 20, encoder=encoder(mixer, positions), pool=pool)


def of_features(pool: Any, mixer: Any, positions: Any = NoPositions) -> Any:
    return partial(Classifier, 3, 4, 20, encoder=encoder(mixer, positions, embed=nn.Linear), pool=pool)


OF_TOKENS: dict[str, Any] = {
    "attention": classifier("mean", ATTENTION, RoPE),
    "attention-no-positions": classifier("mean", ATTENTION),
    "gru-both-ways": classifier("first", BOTH_WAYS),
    "gru": classifier("last", GRU),
    "bag-of-words": partial(BagOfWords, 13, 4, 20, d_model=16),
}
TAGGERS: dict[str, Any] = {
    "tagger-attention": partial(Tagger, 13, 4, 20, encoder=encoder(ATTENTION, RoPE)),
    "tagger-gru": partial(Tagger, 13, 4, 20, encoder=encoder(BOTH_WAYS)),
}
OF_FEATURES: dict[str, Any] = {
    "vit": of_features("class", ATTENTION, Learned),
    "features-gru-both-ways": of_features("mean", BOTH_WAYS),
    "features-gru-with-class-token": of_features("class", BOTH_WAYS),
    "features-mamba": of_features("last", Mamba),
}
MODELS = OF_TOKENS | TAGGERS | OF_FEATURES


@pytest.mark.parametrize("name", MODELS)
def test_padding_on_either_side_changes_nothing(name: str) -> None:
    def draw(length: int) -> Tensor:
        return torch.randn(3, length, 3).double() if name in OF_FEATURES else torch.randint(13, (3, length))

    model, inputs = randomized(MODELS[name]()), draw(7)
    expected = model(inputs)
    assert expected.shape == ((3, 7, 4) if name in TAGGERS else (3, 4)) and expected.std() > 0.05
    for left, right in ((3, 0), (0, 4), (2, 2)):
        mask = torch.arange(left + 7 + right)
        mask = ((mask >= left) & (mask < left + 7)).expand(3, -1)
        found = model(torch.cat((draw(left), inputs, draw(right)), dim=1), pad_mask=mask)
        assert_close(found[:, left : left + 7] if name in TAGGERS else found, expected)


@pytest.mark.parametrize("name", OF_TOKENS)
def test_order_counts_but_in_a_bag(name: str) -> None:
    model = randomized(MODELS[name]())
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    moved = (model(tokens) - model(tokens.flip(1))).abs().max()
    assert (moved < 1e-12) == (name in ("bag-of-words", "attention-no-positions"))


def test_a_tagger_is_pytorchs_embedding_gru_and_linear() -> None:
    bare = partial(Block, norm_place="none", ffn=NoFeedForward, residual=NoResidual)
    ours: Any = randomized(Tagger(13, 4, 20, encoder=encoder(BOTH_WAYS, num_layers=1, block=bare)))
    theirs = nn.GRU(16, 8, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict(ours.encoder.stack.blocks[0].mixer.cell.state_dict())
    tokens = torch.randint(13, (3, 7))
    embedded = 16**0.5 * nn.functional.embedding(tokens, ours.encoder.embedding.weight)
    expected = nn.functional.linear(theirs(embedded)[0], ours.head.weight, ours.head.bias)
    assert expected.shape == (3, 7, 4) and expected.std() > 0.2
    assert_close(ours(tokens), expected)


def test_pooling_by_hand() -> None:
    x = torch.arange(8.0).view(1, 4, 2)
    mask = torch.tensor([[False, True, True, False]])
    assert pooled(x, mask, "mean").tolist() == [[3, 4]]
    assert pooled(x, mask, "first").tolist() == [[2, 3]]
    assert pooled(x, mask, "last").tolist() == [[4, 5]]
    assert pooled(x, None, "last").tolist() == [[6, 7]]
    assert pooled(x, None, "first").tolist() == [[0, 1]]
    assert pooled(x, ~mask & False, "first").tolist() == pooled(x, ~mask & False, "last").tolist() == [[0, 1]]
    assert pooled(x, ~mask & False, "mean").tolist() == [[0, 0]]


def test_the_class_token_comes_first_by_hand() -> None:
    x = torch.tensor([[[1.0], [2.0], [3.0]]])
    y, mask = prepended(torch.tensor([9.0]), x, torch.tensor([[False, True, True]]))
    assert y.tolist() == [[[9], [2], [3], [1]]] and mask is not None and mask.tolist() == [[True, True, True, False]]


def test_features_where_tokens_are_read_and_the_other_way_round_are_refused() -> None:
    features, tokens = torch.randn(2, 7, 3), torch.ones(2, 7, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"which ScaledEmbedding does not embed; .* to torch\.nn\.Linear"):
        Classifier(3, 4, 20, encoder=encoder(GRU))(features)
    with pytest.raises(ValueError, match=r"are tokens, which Linear does not embed; .* to torch\.nn\.Embedding"):
        of_features("mean", GRU)()(tokens)
    with pytest.raises(ValueError, match="are features, which Embedding does not embed"):
        BagOfWords(3, 4, 20)(features)
    with pytest.raises(ValueError, match='tie_embeddings "all" needs a source of tokens'):
        EncoderDecoder(9, 9, 20, encoder=encoder(GRU, embed=nn.Linear), tie_embeddings="all")
