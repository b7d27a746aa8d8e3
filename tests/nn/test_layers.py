"""Norms and feed-forward layers against their equations."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from seqlab.nn import GELU, LayerNorm, ReLU, RMSNorm, SquaredReLU, SwiGLU
from tolerances import assert_close


def _randomized(module: nn.Module) -> nn.Module:
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


def _outer(ffn: nn.Module, inner: Tensor) -> Tensor:
    return inner @ ffn.down_proj.weight.T + ffn.down_proj.bias


def test_relu_squared_relu_and_exact_gelu(x: Tensor) -> None:
    for kind, activation in (
        (ReLU, lambda h: h * (h > 0)),
        (SquaredReLU, lambda h: h * h * (h > 0)),
        (partial(GELU, exact=True), lambda h: h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))),
    ):
        ffn = _randomized(kind(8))
        inner = x @ ffn.up_proj.weight.T + ffn.up_proj.bias
        assert_close(ffn(x), _outer(ffn, activation(inner)))


@pytest.mark.parametrize("bias", [True, False])
def test_gelu(x: Tensor, bias: bool) -> None:
    ffn = _randomized(GELU(8, bias=bias))
    assert ffn.up_proj.weight.shape == (32, 8)
    inner = x @ ffn.up_proj.weight.T + (ffn.up_proj.bias if bias else 0)
    cubic = math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)
    expected = (0.5 * inner * (1 + torch.tanh(cubic))) @ ffn.down_proj.weight.T + (ffn.down_proj.bias if bias else 0)
    assert_close(ffn(x), expected)


def test_swiglu(x: Tensor) -> None:
    ffn = _randomized(SwiGLU(8, d_ff=5))
    gate, up = x @ ffn.gate_proj.weight.T, x @ ffn.up_proj.weight.T
    assert_close(ffn(x), (gate / (1 + torch.exp(-gate)) * up) @ ffn.down_proj.weight.T)


@pytest.mark.parametrize(("d_model", "d_ff"), [(3, 8), (48, 128), (64, 176), (96, 256), (4096, 10928)])
def test_swiglu_is_as_large_as_gelu(d_model: int, d_ff: int) -> None:
    """8/3 d_model, rounded up to a multiple of 8."""
    with torch.device("meta"):
        assert SwiGLU(d_model).up_proj.out_features == d_ff
