"""Outputs and gradients of every mixer with every encoding that fits it, against the papers' equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.cases import D_MODEL, MAX_SEQ_LEN, PAIRS, MixerCase, PositionCase, with_lengths
from contracts.subjects import randomized
from seqlab.laws import WithMemory
from seqlab.positions import PositionalEncoding
from tolerances import assert_close

Pair = tuple[MixerCase, PositionCase]


def _build(pair: Pair) -> tuple[torch.nn.Module, PositionalEncoding]:
    mixer, encoding = pair[0].factory(D_MODEL, 0), pair[1].factory(D_MODEL, MAX_SEQ_LEN)
    mixer.attach_positions(encoding)
    mixer, encoding = randomized(mixer), randomized(encoding)
    return WithMemory(mixer) if pair[0].memory else mixer, encoding


def _inputs(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two rows, one of them padded, and the positions of their tokens."""
    x = torch.randn(2, length, D_MODEL, dtype=torch.float64, requires_grad=True)
    real = torch.ones(2, length, dtype=torch.bool)
    real[1, : length // 3] = False
    return x, real, (real.cumsum(1) - 1).clamp(min=0)


def _reference(pair: Pair, mixer: Any, encoding: torch.nn.Module, x: Tensor, real: Tensor) -> Tensor:
    weights, naive = encoding.state_dict(keep_vars=True), pair[1].reference
    counts = real.cumsum(1)
    rows = [
        torch.stack([naive.embed(x_t, max(0, int(count) - 1), weights) for x_t, count in zip(*both, strict=True)])
        for both in zip(x, counts, strict=True)
    ]
    told = {}
    if pair[0].memory:
        told = {"memory": mixer.memory, "memory_mask": mixer.memory_mask}
        mixer = mixer.mixer
    return pair[0].reference(dict(mixer.named_parameters()), torch.stack(rows), real, naive, weights, **told)


@pytest.mark.parametrize(("pair", "lengths"), with_lengths(PAIRS))
def test_outputs_and_gradients(pair: Pair, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        _check(*_build(pair), pair, length)


def _check(mixer: torch.nn.Module, encoding: PositionalEncoding, pair: Pair, length: int) -> None:
    x, real, positions = _inputs(length)
    expected = _reference(pair, mixer, encoding, x, real)
    y, _ = mixer(encoding.embed(x, positions), pad_mask=real)
    assert_close(y[real], expected[real], f"the output of {length} tokens")

    names = ["x", *(name for part in (mixer, encoding) for name, _ in part.named_parameters())]
    leaves = [x, *mixer.parameters(), *encoding.parameters()]
    weight = torch.randn_like(y) * real.unsqueeze(-1)
    ours = torch.autograd.grad((weight * y).sum(), leaves)
    theirs = torch.autograd.grad((weight * expected).sum(), leaves, allow_unused=True, materialize_grads=True)
    for name, gradient, reference in zip(names, ours, theirs, strict=True):
        assert_close(gradient, reference, f"the gradient of {name} of {length} tokens")

    mixer.float(), encoding.float()
    single, _ = mixer(encoding.embed(x.detach().float(), positions), pad_mask=real)
    assert single.dtype == torch.float32
    assert_close(single[real], expected[real], f"the output of {length} tokens in float32")
