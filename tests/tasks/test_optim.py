"""Decay groups and the learning-rate schedule by hand."""

from __future__ import annotations

import math

import pytest
import torch

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import Learned
from seqlab.recurrence import LSTM
from seqlab.tasks.optim import adamw, scheduled, warmup_cosine


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 1 / 5), (1, 2 / 5), (3, 4 / 5), (4, 1.0), (9, 0.1 + 0.9 * 0.5), (14, 0.1), (15, 0.1), (100, 0.1)],
)
def test_warm_up_then_cosine(step: int, expected: float) -> None:
    """Four steps of warm-up, then ten of half a cosine down to a tenth."""
    assert warmup_cosine(step, warmup_steps=4, total_steps=14, min_ratio=0.1) == pytest.approx(expected)


def test_the_cosine_is_one() -> None:
    for step in range(4, 15):
        expected = 0.1 + 0.9 * math.cos(math.pi * (step - 4) / 20) ** 2
        assert warmup_cosine(step, warmup_steps=4, total_steps=14, min_ratio=0.1) == pytest.approx(expected)


def test_no_warm_up_starts_at_the_peak() -> None:
    assert warmup_cosine(0, warmup_steps=0, total_steps=10, min_ratio=0.1) == 1.0


def test_an_unknown_end_stays_at_the_peak() -> None:
    factors = [warmup_cosine(step, warmup_steps=2, total_steps=None, min_ratio=0.1) for step in range(6)]
    assert factors == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1])


@pytest.mark.parametrize("total_steps", [4, 2])
def test_a_fit_that_ends_in_its_warm_up_has_a_schedule(total_steps: int) -> None:
    factors = [warmup_cosine(step, warmup_steps=4, total_steps=total_steps, min_ratio=0.1) for step in range(6)]
    assert all(0 < factor <= 1 for factor in factors)


def test_the_schedule_moves_the_learning_rate() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.SGD([parameter], lr=2.0)
    scheduler = scheduled(optimizer, warmup_steps=1, total_steps=3, min_ratio=0.0)
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([1.0, 2.0, 1.0, 0.0])


@pytest.mark.parametrize("tie_embeddings", [True, False])
def test_decay_groups(tie_embeddings: bool) -> None:
    """Matrices and embeddings decay; biases and gains do not; each parameter once, the tied embedding too."""
    model = DecoderLM(11, 16, d_model=8, mixer=[Attention, LSTM], positions=Learned, tie_embeddings=tie_embeddings)
    optimizer = adamw(model, lr=0.5, weight_decay=0.1, betas=(0.8, 0.9))
    assert isinstance(optimizer, torch.optim.AdamW)
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = {group["weight_decay"]: [names[p] for p in group["params"]] for group in optimizer.param_groups}
    decayed, kept = groups[0.1], groups[0.0]
    assert sorted(decayed + kept) == sorted(names.values())
    vectors = ("bias", "_norm.weight", "stack.norm.weight", "cell.bias_ih_l0", "cell.bias_hh_l0")
    assert sorted(kept) == sorted(name for name in names.values() if name.endswith(vectors))
    assert {"embedding.weight", "positions.table.weight", "stack.blocks.1.mixer.cell.weight_hh_l0"} <= set(decayed)
    assert ("head.weight" in decayed) == (not tie_embeddings)
    assert all(group["lr"] == 0.5 and group["betas"] == (0.8, 0.9) for group in optimizer.param_groups)


def test_frozen_parameters_are_left_alone() -> None:
    model = DecoderLM(11, 16, d_model=8)
    model.embedding.weight.requires_grad_(False)
    optimizer = adamw(model, lr=0.1, weight_decay=0.1, betas=(0.9, 0.99))
    assert all(p is not model.embedding.weight for group in optimizer.param_groups for p in group["params"])
