"""Measurements of one head, against the formula."""

from __future__ import annotations

import math

import pytest
import torch

from seqlab.attention import Attention
from seqlab.studies.scale_of_scores import BATCH, LENGTH, attend


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_against_attention_by_hand() -> None:
    found, again = attend(16, 1.0, draw()), draw()
    q_proj, k_proj, v_proj, out_proj = (
        torch.randn(16, 16, generator=again, dtype=torch.float64) / 4 for _ in ("q", "k", "v", "out")
    )
    x = torch.randn(BATCH, LENGTH, 16, generator=again, dtype=torch.float64)
    q, k = ((x @ projection.T).requires_grad_() for projection in (q_proj, k_proj))
    weights = (q @ k.mT).softmax(-1)
    out = weights @ (x @ v_proj.T) @ out_proj.T
    (out * torch.randn(BATCH, LENGTH, 16, generator=again, dtype=torch.float64)).sum().backward()
    assert q.grad is not None and k.grad is not None
    weights = weights.detach()
    assert found.largest == pytest.approx(float(weights.amax(-1).median()))
    assert found.entropy == pytest.approx(float(torch.special.entr(weights).sum(-1).median()))
    assert found.gradient == pytest.approx(float(q.grad.norm(dim=-1).median()))
    assert found.key_gradient == pytest.approx(float(k.grad.norm(dim=-1).median()))


def test_the_division_is_what_a_block_does_by_itself() -> None:
    assert attend(64, None, draw()) == attend(64, 1 / math.sqrt(64), draw()) != attend(64, 1.0, draw())
    assert Attention(64, num_heads=1).scoring.scale == 1 / 8


def test_equal_scores_have_the_entropy_of_a_uniform_choice() -> None:
    found = attend(16, 1e-9, draw())
    assert found.entropy == pytest.approx(math.log(LENGTH)) and found.largest == pytest.approx(1 / LENGTH)
