"""The laws of every mixer with every encoding that acts in it, and with the memory that it reads, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from contracts.cases import CAUSAL_PAIRS, MEMORY_PAIRS, MIXERS, POSITIONS, MixerCase, PositionCase, with_lengths
from contracts.subjects import check_laws, mixer_subject
from seqlab.laws import CAUSAL

IN_MIXER = [pair for pair in CAUSAL_PAIRS if pair[1].acts_on != "embeddings" or pair[1].name == "none"]


@pytest.mark.parametrize(("pair", "lengths"), with_lengths(IN_MIXER + MEMORY_PAIRS))
def test_a_pair_keeps_the_laws(pair: tuple[MixerCase, PositionCase], lengths: tuple[int, ...]) -> None:
    check_laws(CAUSAL, mixer_subject(*pair), lengths)


@torch.no_grad()
def test_no_normaliser_of_linear_attention_is_near_zero() -> None:
    """Otherwise a law would compare rounding errors."""
    case = next(mixer for mixer in MIXERS if mixer.name == "linear-relu")
    for _ in range(20):
        mixer, inputs = mixer_subject(case, POSITIONS[0])
        x = inputs(3, 7)
        products = F.relu(mixer.q_proj(x)) * F.relu(mixer.k_proj(x)).cumsum(dim=1)
        assert products.unflatten(-1, (mixer.num_heads, -1)).sum(dim=-1).min() > 0.5
