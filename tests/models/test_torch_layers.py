"""Our mixers, blocks and models with the weights of PyTorch's own layers: the same outputs, states and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.subjects import randomized
from models.test_sequence_to_sequence import D_MODEL as MODEL_WIDTH
from models.test_sequence_to_sequence import SOURCE_VOCAB, TARGET_VOCAB, transformer
from seqlab.attention import Attention, Bidirectional, Causal
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LSTM, RNN
from tolerances import assert_close

D_MODEL = 12
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Two rows, one of them padded."""
    return torch.randn(2, 9, D_MODEL, dtype=dtype, requires_grad=True), torch.arange(9) < torch.tensor([[9], [6]])


def _gradients(module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    ramp = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    names = ["x", *(name for name, _ in module.named_parameters())]
    return dict(zip(names, torch.autograd.grad((ramp * y).sum(), [x, *module.parameters()]), strict=True))


def _attention_weights(theirs: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Their weights by our names."""
    weights: dict[str, Tensor] = {f"out_proj.{name}": p for name, p in theirs.out_proj.named_parameters()}
    for part in ("weight", "bias"):
        stacked = getattr(theirs, f"in_proj_{part}").chunk(3)
        weights |= {f"{letter}_proj.{part}": p for letter, p in zip("qkv", stacked, strict=True)}
    return weights


def _copy(theirs: nn.Module, places: dict[str, Any]) -> None:
    """Gives each of our modules the weights of theirs of that name."""
    for name, ours in places.items():
        layer = theirs.get_submodule(name)
        ours.load_state_dict(
            _attention_weights(layer) if isinstance(layer, nn.MultiheadAttention) else layer.state_dict()
        )


def _layers_of(block: Any) -> dict[str, Any]:
    """The layers of a block, by the names in PyTorch's encoder layer."""
    feed_forward = {"linear1": block.ffn.up_proj, "linear2": block.ffn.down_proj}
    return {"self_attn": block.mixer, "norm1": block.mixer_norm, "norm2": block.ffn_norm, **feed_forward}


@dtypes
@pytest.mark.parametrize("causal", [True, False])
def test_multi_head_attention(causal: bool, dtype: torch.dtype) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, 3, batch_first=True, dtype=dtype)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = Attention(D_MODEL, num_heads=3, pattern=Causal if causal else Bidirectional).to(dtype)
    ours.load_state_dict(_attention_weights(theirs))

    x, pad_mask = _inputs(dtype)
    future = ~torch.ones(9, 9, dtype=torch.bool).tril() if causal else None
    expected, expected_weights = theirs(
        x, x, x, key_padding_mask=~pad_mask, attn_mask=future, average_attn_weights=False
    )
    y, _ = ours(x, pad_mask=pad_mask)
    assert_close(y[pad_mask], expected[pad_mask])
    weights_ours = ours.attention_weights(x, pad_mask=pad_mask)
    assert_close(weights_ours.transpose(1, 2)[pad_mask], expected_weights.transpose(1, 2)[pad_mask])

    real = pad_mask.unsqueeze(-1)
    gradients, their_gradients = _gradients(ours, x, y * real), _gradients(theirs, x, expected * real)
    assert_close(gradients["x"], their_gradients["x"])
    for part in ("weight", "bias"):
        stacked = torch.cat([gradients[f"{letter}_proj.{part}"] for letter in "qkv"])
        assert_close(stacked, their_gradients[f"in_proj_{part}"])


@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_transformer_of_an_encoder_and_a_decoder(norm_place: Any) -> None:
    """They get our embeddings."""
    options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": norm_place == "pre"}
    encoder_layer = nn.TransformerEncoderLayer(MODEL_WIDTH, 2, 40, **options)
    encoder = nn.TransformerEncoder(encoder_layer, 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(MODEL_WIDTH, 2, 40, **options), 2)
    randomized(encoder), randomized(decoder)
    ours = transformer(norm_place=norm_place, positions=NoPositions).double()
    for k in range(2):
        _copy(encoder.layers[k], _layers_of(ours.encoder.stack.blocks[k]))
        own: Any = ours.stack.blocks[2 * k]
        cross: Any = ours.stack.blocks[2 * k + 1]
        attentions = {"self_attn": own.mixer, "multihead_attn": cross.mixer}
        norms = {"norm1": own.mixer_norm, "norm2": cross.mixer_norm, "norm3": cross.ffn_norm}
        linears = {"linear1": cross.ffn.up_proj, "linear2": cross.ffn.down_proj}
        _copy(decoder.layers[k], attentions | norms | linears)
    source, tokens = torch.randint(SOURCE_VOCAB, (3, 9)), torch.randint(TARGET_VOCAB, (3, 7))
    mask = torch.arange(9) < torch.tensor([[9], [4], [6]])
    memory = encoder(ours.encoder.embedding(source), src_key_padding_mask=~mask)
    future = ~torch.ones(7, 7, dtype=torch.bool).tril()
    # They leave the norms after the last layers to the caller; ours are at 1 and 0.
    last: Any = partial(nn.functional.layer_norm, normalized_shape=(MODEL_WIDTH,))
    memory = last(memory) if norm_place == "pre" else memory
    x = decoder(ours.embedding(tokens), memory, tgt_mask=future, memory_key_padding_mask=~mask)
    x = last(x) if norm_place == "pre" else x
    logits, _ = ours(tokens, ours.begin(source, mask))
    assert_close(logits, x @ ours.embedding.weight.T)


RECURRENCES = [(GRU, nn.GRU, {}), (LSTM, nn.LSTM, {}), (RNN, nn.RNN, {}), (RNN, nn.RNN, {"nonlinearity": "relu"})]


@dtypes
@pytest.mark.parametrize("form", ["fused", "looped", "both-ways"])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize(("ours_type", "theirs_type", "options"), RECURRENCES)
def test_recurrences(
    ours_type: Any, theirs_type: Any, options: dict[str, Any], num_layers: int, form: str, dtype: torch.dtype
) -> None:
    both = {"num_layers": num_layers, "bidirectional": form == "both-ways", **options}
    theirs = theirs_type(D_MODEL, D_MODEL // (2 if form == "both-ways" else 1), batch_first=True, **both).to(dtype)
    ours = ours_type(D_MODEL, looped=form == "looped", **both).to(dtype)
    ours.cell.load_state_dict(theirs.state_dict())
    x, _ = _inputs(dtype)
    if form == "both-ways":
        (y, state), (expected, _) = ours(x), theirs(x)
        assert state == {}
    else:
        start = {name: torch.randn(2, num_layers, D_MODEL, dtype=dtype) for name in ours.state_names}
        first = tuple(entry.transpose(0, 1).contiguous() for entry in start.values())
        expected, last = theirs(x, first if len(first) > 1 else first[0])
        y, state = ours(x, start)
        for ours_entry, entry in zip(state.values(), (last,) if isinstance(last, Tensor) else last, strict=True):
            assert_close(ours_entry, entry.transpose(0, 1))
    assert_close(y, expected)
    pairs = zip(_gradients(ours, x, y).values(), _gradients(theirs, x, expected).values(), strict=True)
    for gradient, reference in pairs:
        assert_close(gradient, reference)
