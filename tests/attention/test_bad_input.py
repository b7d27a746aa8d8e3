"""Attention refuses invalid options and inputs in a sentence that names both sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from seqlab.attention import (
    AdditiveAttention,
    Attention,
    CrossAttention,
    DifferentialAttention,
    LatentAttention,
    MultiplicativeAttention,
)
from seqlab.positions import NoPositions, RoPE


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(CrossAttention, num_heads=3), "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        (partial(CrossAttention, num_kv_heads=3), "got num_kv_heads 3 and num_heads 4"),
        (partial(LatentAttention, num_heads=3), "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        (partial(LatentAttention, num_heads=0, head_dim=4), "got num_heads 0"),
        (partial(LatentAttention, head_dim=0), "head_dim must be at least 1, got 0"),
        (partial(LatentAttention, kv_rank=0), "kv_rank must be at least 1, got 0"),
        (partial(LatentAttention, q_rank=-1), "q_rank must be at least 1, got -1"),
        (partial(LatentAttention, num_heads=16), "rope_head_dim must be at least 1, got 0"),
        (partial(DifferentialAttention, num_heads=3), "num_heads must divide d_model, got num_heads 3 and d_model 16"),
        (partial(DifferentialAttention, num_kv_heads=4), "got num_kv_heads 4 and num_heads 2"),
        (partial(DifferentialAttention, num_heads=16), "d_model / num_heads must be even, got 16 / 16 = 1"),
        (partial(MultiplicativeAttention, window=0), "the window of local attention must be at least 1, got 0"),
        (partial(MultiplicativeAttention, recurrence=Attention), "needs a recurrence .* LSTM or GRU, got Attention"),
        (partial(MultiplicativeAttention, recurrence=AdditiveAttention), "recurrence .*, got AdditiveAttention"),
    ],
)
def test_what_cannot_be_built(build: Callable[[int], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(16)


class WeighsValues(NoPositions):
    acts_on = "attention scores"
    weighs_values = True


@pytest.mark.parametrize("mixer", [LatentAttention, DifferentialAttention])
def test_positions_that_add_to_values(mixer: Callable[[int], Any]) -> None:
    with pytest.raises(ValueError, match=f"WeighsValues adds to the values of each key, which {mixer.__name__}"):
        mixer(16).attach_positions(WeighsValues(16, 8))


def test_a_rotary_encoding_is_told_its_own_width() -> None:
    LatentAttention(12, num_heads=2, rope_head_dim=2).attach_positions(RoPE(12, 8))
    with pytest.raises(ValueError, match="head_dim must be even, got 3"):
        LatentAttention(16, rope_head_dim=3).attach_positions(RoPE(16, 8))
