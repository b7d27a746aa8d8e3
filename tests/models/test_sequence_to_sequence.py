"""Models that read a source and write a target: one state, torch's own layers, the papers' counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

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
from seqlab.decoding import Sampling, choose, generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.models import Encoder, EncoderDecoder, RNNSeq2Seq
from seqlab.nn import Block, ReLU
from seqlab.positions import Learned, NoPositions, RoPE, Sinusoidal
from seqlab.recurrence import GRU, LSTM, RNN, Mamba
from tolerances import assert_close

SOURCE_VOCAB, TARGET_VOCAB, LONGEST, D_MODEL = 13, 11, 24, 16


def transformer(
    vocab_size: int = SOURCE_VOCAB,
    target_vocab_size: int = TARGET_VOCAB,
    *,
    d_model: int = D_MODEL,
    num_heads: int = 2,
    d_ff: int = 40,
    num_layers: int = 2,
    norm_place: Any = "post",
    positions: Any = Sinusoidal,
    tie_embeddings: Any = "target",
) -> EncoderDecoder:
    block = partial(Block, norm_place=norm_place, ffn=partial(ReLU, d_ff=d_ff))
    attention = partial(Attention, num_heads=num_heads)
    encoder = partial(
        Encoder,
        mixer=partial(attention, pattern=Bidirectional),
        d_model=d_model,
        num_layers=num_layers,
        block=block,
        positions=positions,
    )
    return EncoderDecoder(
        vocab_size,
        target_vocab_size,
        LONGEST,
        encoder=encoder,
        num_layers=num_layers,
        mixer=attention,
        cross=partial(CrossAttention, num_heads=num_heads),
        positions=positions,
        block=block,
        tie_embeddings=tie_embeddings,
    )


def recurrent(mixer: Any, **options: Any) -> EncoderDecoder:
    encoder = partial(
        Encoder, mixer=partial(GRU, bidirectional=True), d_model=D_MODEL, num_layers=1, positions=NoPositions
    )
    return EncoderDecoder(
        SOURCE_VOCAB, TARGET_VOCAB, LONGEST, encoder=encoder, mixer=mixer, positions=NoPositions, **options
    )


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
def test_the_source_and_what_was_written_count_and_the_future_does_not(name: str) -> None:
    model, source, mask, tokens = built(name)
    logits, _ = model(tokens, model.begin(source, mask))
    other_source = torch.where(torch.arange(9) == 2, (source + 1) % SOURCE_VOCAB, source)
    moved, _ = model(tokens, model.begin(other_source, mask))
    assert ((moved - logits).abs().amax(dim=(1, 2)) > 1e-6).all()
    other_tokens = torch.where(torch.arange(8) == 5, (tokens + 1) % TARGET_VOCAB, tokens)
    moved, _ = model(other_tokens, model.begin(source, mask))
    assert_close(moved[:, :5], logits[:, :5])
    assert ((moved - logits)[:, 5:].abs().amax(dim=(1, 2)) > 1e-6).all()


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


@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_torchs_transformer_layers(norm_place: Any) -> None:
    """With the weights of `nn.TransformerEncoder` and `nn.TransformerDecoder`, which get our embeddings."""
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": norm_place == "pre"}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D_MODEL, 2, 40, **options), 2, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D_MODEL, 2, 40, **options), 2)
    randomized(encoder), randomized(decoder)
    ours = transformer(norm_place=norm_place, positions=NoPositions).double()
    for k in range(2):
        layer, block = encoder.layers[k], ours.encoder.stack.blocks[k]
        own, cross = ours.stack.blocks[2 * k], ours.stack.blocks[2 * k + 1]
        written = decoder.layers[k]
        _copy_attention(layer.self_attn, block.mixer)
        _copy_attention(written.self_attn, own.mixer)
        _copy_attention(written.multihead_attn, cross.mixer)
        for theirs, target in (
            (layer.norm1, block.mixer_norm),
            (layer.norm2, block.ffn_norm),
            (layer.linear1, block.ffn.up_proj),
            (layer.linear2, block.ffn.down_proj),
            (written.norm1, own.mixer_norm),
            (written.norm2, cross.mixer_norm),
            (written.norm3, cross.ffn_norm),
            (written.linear1, cross.ffn.up_proj),
            (written.linear2, cross.ffn.down_proj),
        ):
            target.load_state_dict(theirs.state_dict())
    source, tokens = torch.randint(SOURCE_VOCAB, (3, 9)), torch.randint(TARGET_VOCAB, (3, 7))
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    memory = encoder(ours.encoder.embedding(source), src_key_padding_mask=~mask)
    future = ~torch.ones(7, 7, dtype=torch.bool).tril()
    x = decoder(ours.embedding(tokens), memory, tgt_mask=future, memory_key_padding_mask=~mask)
    if norm_place == "pre":  # They leave the norms after the last layers to the caller; ours are at 1 and 0.
        memory = nn.functional.layer_norm(memory, (D_MODEL,))
        x = decoder(ours.embedding(tokens), memory, tgt_mask=future, memory_key_padding_mask=~mask)
        x = nn.functional.layer_norm(x, (D_MODEL,))
    logits, _ = ours(tokens, ours.begin(source, mask))
    assert_close(logits, x @ ours.embedding.weight.T)


def _copy_attention(theirs: nn.MultiheadAttention, ours: Any) -> None:
    weights = dict(zip("qkv", theirs.in_proj_weight.chunk(3), strict=True))
    biases = dict(zip("qkv", theirs.in_proj_bias.chunk(3), strict=True))
    state = {f"out_proj.{name}": value for name, value in theirs.out_proj.state_dict().items()}
    for letter in "qkv":
        state |= {f"{letter}_proj.weight": weights[letter], f"{letter}_proj.bias": biases[letter]}
    ours.load_state_dict(state)


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


@pytest.mark.parametrize(
    ("d_model", "num_heads", "d_ff", "count"), [(512, 8, 2048, 63_082_496), (1024, 16, 4096, 214_245_376)]
)
def test_counts_of_the_paper(d_model: int, num_heads: int, d_ff: int, count: int) -> None:
    """Vaswani et al. 2017, table 3, base and big, at 37,000 tokens; the paper rounds to 65M and 213M."""
    with torch.device("meta"):
        model = transformer(
            37_000, 37_000, d_model=d_model, num_heads=num_heads, d_ff=d_ff, num_layers=6, tie_embeddings="all"
        )
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_bad_input_names_both_sides() -> None:
    with pytest.raises(ValueError, match="the source has 13 tokens and the target 11"):
        transformer(tie_embeddings="all")
    with pytest.raises(ValueError, match="cross is GRU, which looks at no source"):
        recurrent(GRU, cross=GRU)
    with pytest.raises(ValueError, match="a GRU that reads both ways has no last state"):
        rnn(recurrence=partial(GRU, bidirectional=True))
    model, source, mask, tokens = built("transformer")
    with pytest.raises(ValueError, match=r"state entry position has shape \(2,\).*batch of 3"):
        model(tokens, model.begin(source[:2], mask[:2]))
    with pytest.raises(ValueError, match="Learned positions reach 24"):
        randomized(MODELS["transformer-learned"]()).begin(torch.zeros(1, 25, dtype=torch.int64))
