"""Outputs, gradients and attention weights of every mixer with every encoding, against the papers' equations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.cases import D_MODEL, MAX_SEQ_LEN, PAIRS, MixerCase, PositionCase, pair_name, with_lengths
from contracts.subjects import mixer_subject, randomized
from seqlab.attention import DifferentialAttention, LatentAttention, NativeSparseAttention
from seqlab.laws import WithMemory
from seqlab.nn.padding import real_positions
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


ATTENDING = [
    (mixer, positions)
    for mixer, positions in PAIRS
    if (mixer.attends or mixer.own_positions) and (positions.acts_on != "embeddings" or positions.name == "none")
]


def _values(module: torch.nn.Module, x: Tensor) -> Tensor:
    """(B, H, S, V): the values that the heads of a mixer read from x (B, S, D)."""
    if isinstance(module, LatentAttention):
        latent = module.kv_norm(module.kv_down_proj(x)[..., : module.kv_rank])
        return module.v_proj(latent).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
    values = module.v_proj(x).unflatten(-1, (module.num_kv_heads, -1)).transpose(1, 2)
    return values.repeat_interleave(module.num_heads // module.num_kv_heads, dim=1)


def _total(module: torch.nn.Module) -> float:
    """Sum of a row of weights: 1, or 1 - lambda for the difference of two maps."""
    if not isinstance(module, DifferentialAttention):
        return 1.0
    first, second = (
        (q @ k).item() for q, k in ((module.lambda_q1, module.lambda_k1), (module.lambda_q2, module.lambda_k2))
    )
    return 1 - (math.exp(first) - math.exp(second) + module.lambda_init)


def _mixed(module: Any, weights: Tensor, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
    """(B, T, D): the values of x (B, S, D), averaged by the weights (B, H, T, S) and projected out."""
    positions = real_positions(None, pad_mask, x)
    heads = weights @ _values(module, x)
    relative = module.scoring.positions.values(weights, positions, positions)
    heads = heads if relative is None else heads + relative
    if isinstance(module, DifferentialAttention):
        heads = module.head_norm(heads) * (1 - module.lambda_init)
    heads = heads.transpose(1, 2).flatten(2)
    for part in getattr(module, "parts", ()):
        heads = part.output(heads, x)
    return module.out_proj(heads)


@pytest.mark.parametrize("pair", ATTENDING, ids=pair_name)
def test_weights_are_what_forward_mixes_with(pair: Pair) -> None:
    """With padding and without, and in a call that continues another, where they are the last rows."""
    module, draw = mixer_subject(*pair)
    x = draw(3, 9)
    pad_mask = torch.ones(3, 9, dtype=torch.bool)
    pad_mask[1, :4] = False
    pad_mask[2, 5:] = False
    weights = module.attention_weights(x, pad_mask=pad_mask)
    assert weights.shape == (3, module.num_heads, 9, 9)
    totals = weights.sum(-1)
    if any(part.sink() is not None for part in getattr(module, "parts", ())):
        assert (totals < 1).all() and (totals > 0).all()
    elif isinstance(module, NativeSparseAttention):  # three rows, times gates
        assert (totals < 3).all() and (totals > 0).all()
    else:
        assert_close(totals, torch.full_like(totals, _total(module)), "the sum of a row")
    real = weights.transpose(1, 2)[pad_mask]
    real_keys = pad_mask[:, None, :].expand(3, 9, 9)[pad_mask][:, None, :].expand_as(real)
    assert (real[~real_keys] == 0).all(), "a pad has weight"
    if module.causal and module.first_call == 1:
        assert (weights.triu(diagonal=1).transpose(1, 2)[pad_mask] == 0).all(), "a later key has weight"
    y, _ = module(x, pad_mask=pad_mask)
    assert_close(_mixed(module, weights, x, pad_mask)[pad_mask], y[pad_mask], "weights times values")
    plain = module.attention_weights(x)
    assert_close(_mixed(module, plain, x), module(x)[0], "weights times values without padding")
    if module.causal:
        _, state = module(x[:, :5])
        assert_close(module.attention_weights(x[:, 5:], state), plain[:, :, 5:])
