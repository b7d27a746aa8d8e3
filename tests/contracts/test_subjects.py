"""Draws are kept away from where a law would compare rounding errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from contracts.cases import MIXERS, POSITIONS
from contracts.subjects import mixer_subject


@torch.no_grad()
@pytest.mark.parametrize("draw", range(20))
def test_no_normaliser_of_linear_attention_is_near_zero(draw: int) -> None:
    torch.manual_seed(torch.initial_seed() + draw)
    case = next(mixer for mixer in MIXERS if mixer.name == "linear-relu")
    mixer, inputs = mixer_subject(case, POSITIONS[0])
    x = inputs(3, 7)
    products = F.relu(mixer.q_proj(x)) * F.relu(mixer.k_proj(x)).cumsum(dim=1)
    assert products.unflatten(-1, (mixer.num_heads, -1)).sum(dim=-1).min() > 0.5
