"""Models that read a source and write a target: one state, torch's own layers, the papers' counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from contracts.subjects import randomized
from seqlab.attention import (
    Additive,
    AdditiveAttention,
    Attention,
    Bidirectional,
    CrossAttention,
    Dot,
    MultiplicativeAttention,
)
from seqlab.batch import PairBatch
from seqlab.decoding import Sampling, choose, generate
from seqlab.decoding.prefixes import forced_nats, free_nats
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import Encoder, EncoderDecoder, RNNSeq2Seq
from seqlab.nn import Block, ReLU
from seqlab.positions import Learned, NoPositions, RoPE, Sinusoidal
from seqlab.recurrence import GRU, LSTM, RNN, Mamba
from tolerances import assert_close

SOURCE_VOCAB, TARGET_VOCAB, LONGEST, D_MODEL = 13, 11, 24, 16


def transformer(
    *, norm_place: Any = "post", positions: Any = Sinusoidal, tie_embeddings: Any = "target"
) -> EncoderDecoder:
    block = partial(Block, norm_place=norm_place, ffn=partial(ReLU, d_ff=40))
    attention = partial(Attention, num_heads=2)
    shared: dict[str, Any] = {"num_layers": 2, "block": block, "positions": positions}
    encoder = partial(Encoder, mixer=partial(attention, pattern=Bidirectional), d_model=D_MODEL, **shared)
    shared |= {"mixer": attention, "cross": partial(CrossAttention, num_heads=2), "tie_embeddings": tie_embeddings}
    return EncoderDecoder(SOURCE_VOCAB, TARGET_VOCAB, LONGEST, encoder=encoder, **shared)


def recurrent(mixer: Any, **options: Any) -> EncoderDecoder:
    both_ways: Any = partial(GRU, bidirectional=True)
    encoder = partial(Encoder, mixer=both_ways, d_model=D_MODEL, num_layers=1, positions=NoPositions)
    options |= {"encoder": encoder, "mixer": mixer, "positions": NoPositions}
    return EncoderDecoder(SOURCE_VOCAB, TARGET_VOCAB, LONGEST, **options)


def rnn(**options: Any) -> RNNSeq2Seq:
    return RNNSeq2Seq(SOURCE_VOCAB, TARGET_VOCAB, LONGEST, d_model=D_MODEL, **options)


MODELS: dict[str, Callable[[], Any]] = {
    "transformer": transformer,
    "transformer-pre-norm-rope": partial(transformer, norm_place="pre", positions=RoPE, tie_embeddings="none"),
    "transformer-learned": partial(transformer, positions=Learned),
    "additive": partial(recurrent, AdditiveAttention, num_layers=1),
    "dot-from-the-previous-state": partial(recurrent, partial(AdditiveAttention, score=Dot), num_layers=1),
    "multiplicative-dot": partial(recurrent, partial(MultiplicativeAttention, score=Dot), num_layers=1),
    "multiplicative-concat": partial(recurrent, partial(MultiplicativeAttention, score=Additive), num_layers=1),
    "multiplicative-local": partial(recurrent, partial(MultiplicativeAttention, window=2), num_layers=1),
    "multiplicative-fed": partial(recurrent, partial(MultiplicativeAttention, input_feeding=True), num_layers=1),
    "hybrid": partial(recurrent, [Mamba, AdditiveAttention], num_layers=2),
    "gru": rnn,
    "rnn-fed": partial(rnn, recurrence=RNN, feed_context=True),
    "lstm-stacked-fed": partial(rnn, recurrence=partial(LSTM, num_layers=2), feed_context=True, tie_embeddings=True),
}
models = pytest.mark.parametrize("name", MODELS)


def built(name: str) -> tuple[Any, Tensor, Tensor, Tensor]:
    """A model in float64, three sources of different lengths with their mask, and their targets."""
    source = torch.randint(SOURCE_VOCAB, (3, 9))
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    return randomized(MODELS[name]()), source, mask, torch.randint(TARGET_VOCAB, (3, 8))


@models
def test_forward_steps_and_chunks_are_one(name: str) -> None:
    model, source, mask, tokens = built(name)
    start = model.begin(source, mask)
    logits, last = model(tokens, start)
    assert logits.shape == (3, 8, TARGET_VOCAB) and logits.std() > 0.1
    state, stepped = start, []
    for t in range(8):
        logits_t, state = model.step(tokens[:, t], state)
        stepped.append(logits_t)
    assert_close(torch.stack(stepped, dim=1), logits)
    first, between = model(tokens[:, :3], start)
    second, chunked = model(tokens[:, 3:], between)
    assert_close(torch.cat((first, second), dim=1), logits)
    for found in (state, chunked):
        assert list(found) == list(last) == list(start)
        for entry in last:
            assert_close(found[entry].double(), last[entry].double(), entry)


@models
def test_a_row_is_written_as_if_alone(name: str) -> None:
    """Neither the padding of its source nor that of its target, nor the other rows, change it."""
    model, source, mask, tokens = built(name)
    pad_mask = torch.arange(8) < torch.tensor([[8], [5], [8]])
    logits, _ = model(tokens, model.begin(source, mask), pad_mask=pad_mask)
    for row in range(3):
        length, written = int(mask[row].sum()), int(pad_mask[row].sum())
        alone, _ = model(tokens[row : row + 1, :written], model.begin(source[row : row + 1, :length]))
        assert_close(logits[row, :written], alone[0])


@models
def test_text_of_a_batch_is_that_of_each_alone_uncached(name: str) -> None:
    """With forced beginnings of different lengths, padded on the left."""
    model, source, mask, _ = built(name)
    sampling = Sampling(temperature=3.0, seed=5)
    decoder = TorchDecoder(model, model.begin(source, mask))
    forced = [[1], [1, 4, 2], [1, 3]]
    written = generate(decoder, forced, max_new_tokens=7, sampling=sampling)
    for row, prefix in enumerate(forced):
        start = model.begin(source[row : row + 1, : int(mask[row].sum())])
        tokens = list(prefix)
        for step in range(7):
            logits, _ = model(torch.tensor([tokens]), start)
            tokens.append(choose(logits[0, -1].detach().numpy(), sampling, step=step, row=row))
        assert written[row] == tokens[len(prefix) :]
    assert len({token for tokens in written for token in tokens}) > 3


@pytest.mark.parametrize("feed_context", [False, True])
def test_two_torch_lstms(feed_context: bool) -> None:
    """Sutskever et al. 2014; fed, each input has W c added, c being the last output of the encoder."""
    ours = randomized(rnn(recurrence=partial(LSTM, num_layers=2), feed_context=feed_context))
    source, tokens = torch.randint(SOURCE_VOCAB, (3, 9)), torch.randint(TARGET_VOCAB, (3, 7))
    outputs, last = ours.encoder.cell(ours.source_embedding(source))
    x = ours.embedding(tokens)
    if feed_context:
        x = x + (outputs[:, -1] @ ours.context_proj.weight.T).unsqueeze(1)
    expected = ours.head(ours.decoder.cell(x, last)[0])
    assert_close(ours(tokens, ours.begin(source))[0], expected)


def test_bad_input_names_both_sides() -> None:
    with pytest.raises(ValueError, match="the source has 13 tokens and the target 11"):
        transformer(tie_embeddings="all")
    with pytest.raises(ValueError, match="cross is GRU, which does not attend to the source"):
        recurrent(GRU, cross=GRU)
    with pytest.raises(ValueError, match="a bidirectional GRU has no last state"):
        rnn(recurrence=partial(GRU, bidirectional=True))
    model, source, mask, tokens = built("transformer")
    with pytest.raises(ValueError, match=r"state entry position has shape \(2,\).*batch of 3"):
        model(tokens, model.begin(source[:2], mask[:2]))
    with pytest.raises(ValueError, match="Learned positions reach 24"):
        randomized(MODELS["transformer-learned"]()).begin(torch.zeros(1, 25, dtype=torch.int64))


def test_own_words_are_a_prefix_like_any_other() -> None:
    """Loss per word after true and own prefixes."""
    model = RNNSeq2Seq(9, 9, 8, d_model=16).eval()
    source, targets = torch.randint(3, 9, (2, 4, 6))
    tokens = F.pad(targets[:, :-1], (1, 0), value=1)
    batch = PairBatch(source, torch.ones_like(source, dtype=torch.bool), tokens, targets, torch.arange(4))
    with torch.no_grad():
        logits, _ = model(batch.tokens, model.begin(batch.source, batch.source_mask))
    expected = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").double()
    torch.testing.assert_close(forced_nats(model, batch), expected)

    nats, written = free_nats(model, batch)
    own = F.pad(written[:, :-1], (1, 0), value=1)
    torch.testing.assert_close(nats, forced_nats(model, batch, own))
    assert not torch.allclose(nats, expected)
