"""`attention_weights` against `forward`, for every mixer that has them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.cases import PAIRS, MixerCase, PositionCase, pair_name
from contracts.subjects import mixer_subject
from seqlab.attention import DifferentialAttention, LatentAttention
from seqlab.nn.padding import real_positions
from tolerances import assert_close

ATTENDING = [
    (mixer, positions)
    for mixer, positions in PAIRS
    if mixer.attends and (positions.acts_on != "embeddings" or positions.name == "none")
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
def test_weights_are_what_forward_mixes_with(pair: tuple[MixerCase, PositionCase]) -> None:
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
