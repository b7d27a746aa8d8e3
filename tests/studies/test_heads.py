"""Measurements of heads, on weights and models whose answer is known."""

from __future__ import annotations

import pytest
import torch

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.studies.heads import FIRST, places, planted, repeated, roles, score

TOKENS = torch.randint(0, 5, (6, 32), generator=torch.Generator().manual_seed(0))


def test_places_of_each_role_by_hand() -> None:
    tokens = torch.tensor([[7, 8, 7, 9, 8]])
    keys = {role: places(role, tokens)[0] for role in ("previous", "same", "induction", "beginning")}
    assert keys["previous"][3].nonzero().flatten().tolist() == [2]
    assert keys["same"][4].nonzero().flatten().tolist() == [1]
    assert keys["induction"][2].nonzero().flatten().tolist() == [1], "8 followed 7"
    assert keys["induction"][4].nonzero().flatten().tolist() == [2], "7 followed 8"
    assert keys["beginning"][4].nonzero().flatten().tolist() == [0]


def test_scores_of_heads_whose_role_is_known() -> None:
    assert planted("even", TOKENS) == pytest.approx(0, abs=1e-6)
    even = sum(1 / (t + 1) for t in range(FIRST, 32)) / (32 - FIRST)
    assert planted("previous", TOKENS) == pytest.approx(1 - even)
    twice = repeated(TOKENS, 0)
    assert torch.equal(twice[:, :16], twice[:, 16:])
    wanted = places("induction", twice) & torch.ones(32, 32).tril().bool()
    found = wanted / wanted.sum(-1, keepdim=True).clamp(min=1)
    assert score(found.unsqueeze(1), wanted) > 0.6 > score(found.unsqueeze(1), places("previous", twice)) + 0.5


def test_each_head_has_a_score() -> None:
    model = DecoderLM(5, 32, d_model=8, num_layers=2, mixer=Attention, positions=NoPositions).eval()
    assert len(roles(model, {"previous": TOKENS})["previous"]) == 8
