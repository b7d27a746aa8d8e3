"""Norms and feed-forward layers against their equations."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.nn import GELU, LayerNorm, ReLU, RMSNorm, SquaredReLU, SwiGLU
from tolerances import assert_close


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


def test_swiglu(x: Tensor) -> None:
    ffn = _randomized(SwiGLU(8, d_ff=5))
    gate, up = x @ ffn.gate_proj.weight.T, x @ ffn.up_proj.weight.T
    assert_close(ffn(x), (gate / (1 + torch.exp(-gate)) * up) @ ffn.down_proj.weight.T)


@pytest.mark.parametrize(("d_model", "d_ff"), [(3, 8), (48, 128), (64, 176), (96, 256), (4096, 10928)])
def test_swiglu_is_as_large_as_gelu(d_model: int, d_ff: int) -> None:
    """8/3 d_model, rounded up to a multiple of 8."""
    with torch.device("meta"):
        assert SwiGLU(d_model).up_proj.out_features == d_ff
