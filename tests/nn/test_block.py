"""Places of a block's norms, a stack's use of its blocks, and norms and feed-forward layers against their equations."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.nn import (
    GEGLU,
    GELU,
    Block,
    LayerNorm,
    LayerScale,
    NoFeedForward,
    NoResidual,
    ReLU,
    RMSNorm,
    SquaredReLU,
    Stack,
    Sum,
    SwiGLU,
)
from seqlab.nn.stack import layers_of
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU
from tolerances import assert_close


def _block(norm_place: Any, **options: Any) -> Block:
    block = Block(8, GRU(8), norm_place=norm_place, **options)
    for parameter in block.double().parameters():
        nn.init.normal_(parameter)
    return block


def _norms(block: Block) -> set[str]:
    return {name.partition(".")[0] for name, _ in block.named_parameters() if "norm" in name}


BOTH = {"mixer_norm", "ffn_norm"}


@pytest.mark.parametrize(
    ("place", "names", "mixed", "out"),
    [
        # Xiong et al. 2020: the residual stream is never normalised inside a block; a norm ends the stack.
        ("pre", BOTH, lambda b, x: x + b.mixer(b.mixer_norm(x))[0], lambda b, m: m + b.ffn(b.ffn_norm(m))),
        # Vaswani et al. 2017: every residual sum is normalised; nothing is left for the end of the stack.
        ("post", BOTH, lambda b, x: b.mixer_norm(x + b.mixer(x)[0]), lambda b, m: b.ffn_norm(m + b.ffn(m))),
        # Ding et al. 2021: a norm before and after each branch, none on the stream.
        (
            "sandwich",
            BOTH | {"mixer_out_norm", "ffn_out_norm"},
            lambda b, x: x + b.mixer_out_norm(b.mixer(b.mixer_norm(x))[0]),
            lambda b, m: m + b.ffn_out_norm(b.ffn(b.ffn_norm(m))),
        ),
        # OLMo 2: a norm after each branch only.
        (
            "branch",
            {"mixer_out_norm", "ffn_out_norm"},
            lambda b, x: x + b.mixer_out_norm(b.mixer(x)[0]),
            lambda b, m: m + b.ffn_out_norm(b.ffn(m)),
        ),
        ("none", set(), lambda b, x: x + b.mixer(x)[0], lambda b, m: m + b.ffn(m)),
    ],
)
def test_norms_by_place(place: str, names: set[str], mixed: Any, out: Any) -> None:
    block, x = _block(place), torch.randn(2, 5, 8, dtype=torch.float64)
    assert_close(block(x)[0], out(block, mixed(block, x)))
    assert _norms(block) == names
    assert type(block.final_norm()) is (LayerNorm if place in ("pre", "sandwich", "branch") else nn.Identity)
    bare = _block(place, ffn=NoFeedForward)
    assert_close(bare(x)[0], mixed(bare, x))
    assert not any("ffn" in name for name, _ in bare.named_parameters())
    assert isinstance(_block("pre", norm=RMSNorm).final_norm(), RMSNorm)


def test_parallel_branches() -> None:
    """Wang & Komatsuzaki 2021: x + attention(norm(x)) + ffn(norm(x)), one norm."""
    block, x = _block("pre", parallel=True), torch.randn(2, 5, 8, dtype=torch.float64)
    entered = block.mixer_norm(x)
    assert_close(block(x)[0], x + block.mixer(entered)[0] + block.ffn(entered))
    assert _norms(block) == {"mixer_norm"}
    block = _block("pre", parallel=True, shared_norm=False)
    assert_close(block(x)[0], x + block.mixer(block.mixer_norm(x))[0] + block.ffn(block.ffn_norm(x)))
    assert _norms(block) == BOTH
    assert _norms(_block("pre", shared_norm=False)) == BOTH
    with pytest.raises(ValueError, match='norm_place "pre" or "none", got "post"'):
        _block("post", parallel=True)


def test_residuals() -> None:
    x, y = torch.randn(2, 2, 5, 8, dtype=torch.float64)
    assert_close(Sum(8)(x, y), x + y)
    assert_close(Sum(8, scale=0.5)(x, y), x + y / 2)
    assert_close(NoResidual(8)(x, y), y)
    scaled = LayerScale(8, initial=0.25).double()
    assert_close(scaled(x, y), x + y / 4)
    assert scaled.gain.requires_grad
    block = _block("pre", residual=NoResidual)
    mixed = block.mixer(block.mixer_norm(x))[0]
    assert_close(block(x)[0], block.ffn(block.ffn_norm(mixed)))


def test_stochastic_depth_drops_whole_rows_and_keeps_the_mean() -> None:
    block, x = _block("pre", stochastic_depth=0.25), torch.randn(4000, 1, 8, dtype=torch.float64)
    drop, y = block.drop.train(), torch.ones_like(x)
    kept = drop(y).flatten(1)
    assert set(kept.unique().tolist()) == {0.0, 1 / 0.75}
    assert (kept == kept[:, :1]).all(), "a row is dropped whole"
    assert abs(float(kept.mean()) - 1) < 4 * (0.25 / 0.75 / 4000) ** 0.5
    assert_close(drop.eval()(y), y)
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1"):
        _block("pre", stochastic_depth=1.0)


def _stack(mixer: Any, num_layers: int) -> Stack:
    mixers = [make(8, k) for k, make in enumerate(layers_of(mixer, num_layers))]
    return Stack(mixers, positions=NoPositions(8, 8), block=Block, causal=True)


def test_a_list_of_mixers_is_repeated() -> None:
    mixers = [block.mixer for block in _stack([GRU, Attention], 5).blocks]
    assert [type(mixer) for mixer in mixers] == [GRU, Attention, GRU, Attention, GRU]
    assert [mixer.layer for mixer in mixers] == [0, 1, 2, 3, 4]
    assert len({id(mixer) for mixer in mixers}) == 5


def _randomized(module: nn.Module) -> Any:
    for parameter in module.double().parameters():
        nn.init.normal_(parameter)
    return module


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(x: Tensor, bias: bool) -> None:
    norm = _randomized(LayerNorm(8, eps=0.1, bias=bias))
    centred = x - x.mean(dim=-1, keepdim=True)
    expected = centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 0.1).sqrt() * norm.weight
    assert_close(norm(x), expected + norm.bias if bias else expected)
    assert (norm.bias is not None) == bias


def test_rms_norm(x: Tensor) -> None:
    norm = _randomized(RMSNorm(8, eps=0.1))
    assert_close(norm(x), x / (x.pow(2).mean(dim=-1, keepdim=True) + 0.1).sqrt() * norm.weight)


def _tanh_gelu(h: Tensor) -> Tensor:
    return 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        (ReLU, lambda h: h * (h > 0)),
        (SquaredReLU, lambda h: h * h * (h > 0)),
        (partial(GELU, exact=True), lambda h: h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))),
        (GELU, _tanh_gelu),
    ],
)
def test_two_matrices_and_an_activation(x: Tensor, kind: Any, activation: Any, bias: bool) -> None:
    ffn = _randomized(kind(8, bias=bias))
    assert ffn.up_proj.weight.shape == (32, 8) and (ffn.up_proj.bias is not None) == bias
    inner = x @ ffn.up_proj.weight.T + (ffn.up_proj.bias if bias else 0)
    assert_close(ffn(x), activation(inner) @ ffn.down_proj.weight.T + (ffn.down_proj.bias if bias else 0))


@pytest.mark.parametrize(
    ("kind", "activation"), [(SwiGLU, lambda gate: gate / (1 + torch.exp(-gate))), (GEGLU, _tanh_gelu)]
)
def test_gated_layers(x: Tensor, kind: Any, activation: Any) -> None:
    ffn = _randomized(kind(8, d_ff=5))
    gate, up = x @ ffn.gate_proj.weight.T, x @ ffn.up_proj.weight.T
    assert_close(ffn(x), (activation(gate) * up) @ ffn.down_proj.weight.T)


@pytest.mark.parametrize(("d_model", "d_ff"), [(3, 8), (48, 128), (64, 176), (96, 256), (4096, 10928)])
def test_swiglu_is_as_large_as_gelu(d_model: int, d_ff: int) -> None:
    """8/3 d_model, rounded up to a multiple of 8."""
    with torch.device("meta"):
        assert SwiGLU(d_model).up_proj.out_features == d_ff
