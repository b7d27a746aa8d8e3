"""Our mixers with the weights of PyTorch's own layers give the same outputs, states and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention, Bidirectional, Causal
from seqlab.nn import GELU, Block, ReLU
from seqlab.recurrence import GRU, LSTM, RNN
from tolerances import assert_close

D_MODEL = 12
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _gradients(module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    ramp = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    names = ["x", *(name for name, _ in module.named_parameters())]
    return dict(zip(names, torch.autograd.grad((ramp * y).sum(), [x, *module.parameters()]), strict=True))


@dtypes
@pytest.mark.parametrize("causal", [True, False])
def test_multi_head_attention(causal: bool, dtype: torch.dtype) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, 3, batch_first=True, dtype=dtype)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    ours = Attention(D_MODEL, num_heads=3, pattern=Causal if causal else Bidirectional).to(dtype)
    names = ("q_proj", "k_proj", "v_proj")
    weights = dict(zip(names, theirs.in_proj_weight.chunk(3), strict=True))
    biases = dict(zip(names, theirs.in_proj_bias.chunk(3), strict=True))
    state = {f"{name}.weight": weights[name] for name in names} | {f"{name}.bias": biases[name] for name in names}
    ours.load_state_dict(state | {f"out_proj.{name}": p for name, p in theirs.out_proj.named_parameters()})

    x = torch.randn(2, 9, D_MODEL, dtype=dtype, requires_grad=True)
    pad_mask = torch.ones(2, 9, dtype=torch.bool)
    pad_mask[1, 6:] = False
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
        stacked = torch.cat([gradients[f"{name}.{part}"] for name in names])
        assert_close(stacked, their_gradients[f"in_proj_{part}"])


@dtypes
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_transformer_encoder_layer(norm_place: Literal["pre", "post"], activation: str, dtype: torch.dtype) -> None:
    options: dict[str, Any] = {"norm_first": norm_place == "pre", "activation": activation, "dropout": 0.0}
    theirs = nn.TransformerEncoderLayer(D_MODEL, 3, 20, batch_first=True, dtype=dtype, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ffn = partial(ReLU, d_ff=20) if activation == "relu" else partial(GELU, d_ff=20, exact=True)
    attention = Attention(D_MODEL, num_heads=3, pattern=Bidirectional)
    ours = Block(D_MODEL, attention, norm_place=norm_place, ffn=ffn).to(dtype)
    weights = theirs.state_dict()
    for part in ("weight", "bias"):
        stacked = weights.pop(f"self_attn.in_proj_{part}").chunk(3)
        weights |= {f"mixer.{letter}_proj.{part}": p for letter, p in zip("qkv", stacked, strict=True)}
    names = {
        "self_attn.": "mixer.",
        "linear1": "ffn.up_proj",
        "linear2": "ffn.down_proj",
        "norm1": "mixer_norm",
        "norm2": "ffn_norm",
    }
    for theirs_name, ours_name in names.items():
        weights = {name.replace(theirs_name, ours_name): weight for name, weight in weights.items()}
    ours.load_state_dict(weights)

    x = torch.randn(2, 9, D_MODEL, dtype=dtype, requires_grad=True)
    pad_mask = torch.ones(2, 9, dtype=torch.bool)
    pad_mask[1, 6:] = False
    expected = theirs(x, src_key_padding_mask=~pad_mask)
    y, _ = ours(x, pad_mask=pad_mask)
    assert_close(y[pad_mask], expected[pad_mask])
    real = pad_mask.unsqueeze(-1)
    gradients, their_gradients = _gradients(ours, x, y * real), _gradients(theirs, x, expected * real)
    assert_close(gradients["x"], their_gradients["x"])
    assert_close(gradients["ffn.up_proj.weight"], their_gradients["linear1.weight"])


RECURRENCES = [(GRU, nn.GRU, {}), (LSTM, nn.LSTM, {}), (RNN, nn.RNN, {}), (RNN, nn.RNN, {"nonlinearity": "relu"})]


@dtypes
@pytest.mark.parametrize("looped", [False, True], ids=["fused", "looped"])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize(("ours_type", "theirs_type", "options"), RECURRENCES)
def test_recurrences(
    ours_type: Any, theirs_type: Any, options: dict[str, Any], num_layers: int, looped: bool, dtype: torch.dtype
) -> None:
    theirs = theirs_type(D_MODEL, D_MODEL, num_layers, batch_first=True, **options).to(dtype)
    ours = ours_type(D_MODEL, num_layers=num_layers, looped=looped, **options).to(dtype)
    ours.cell.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 9, D_MODEL, dtype=dtype, requires_grad=True)
    start = {name: torch.randn(2, num_layers, D_MODEL, dtype=dtype) for name in ours.state_names}
    first = tuple(entry.transpose(0, 1).contiguous() for entry in start.values())
    expected, last = theirs(x, first if len(first) > 1 else first[0])
    y, state = ours(x, start)
    assert_close(y, expected)
    for ours_entry, entry in zip(state.values(), (last,) if isinstance(last, Tensor) else last, strict=True):
        assert_close(ours_entry, entry.transpose(0, 1))
    pairs = zip(_gradients(ours, x, y).values(), _gradients(theirs, x, expected).values(), strict=True)
    for gradient, reference in pairs:
        assert_close(gradient, reference)


@dtypes
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize(("ours_type", "theirs_type", "options"), RECURRENCES)
def test_recurrences_both_ways(
    ours_type: Any, theirs_type: Any, options: dict[str, Any], num_layers: int, dtype: torch.dtype
) -> None:
    both = {"num_layers": num_layers, "bidirectional": True, **options}
    theirs = theirs_type(D_MODEL, D_MODEL // 2, batch_first=True, **both).to(dtype)
    ours = ours_type(D_MODEL, **both).to(dtype)
    ours.cell.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 9, D_MODEL, dtype=dtype, requires_grad=True)
    (y, state), (expected, _) = ours(x), theirs(x)
    assert_close(y, expected)
    assert state == {}
    pairs = zip(_gradients(ours, x, y).values(), _gradients(theirs, x, expected).values(), strict=True)
    for gradient, reference in pairs:
        assert_close(gradient, reference)
