"""Counts where the answer is known."""

from __future__ import annotations

import pytest
import torch

from seqlab.attention import Attention, SlidingWindow
from seqlab.budgets import forward_flops
from seqlab.budgets.formulae import products
from seqlab.nn import Block
from seqlab.studies.cost import QUADRATIC, SHORT, WIDTH, counted, exponent, masked
from seqlab.studies.rules import Interval, Verdict


def test_exponents_of_powers() -> None:
    for power in (0.0, 1.0, 2.0):
        assert exponent({at: 7 * at**power for at in SHORT}) == pytest.approx(power)
    assert 1 < exponent({at: at**2 + 100 * at for at in SHORT}) < 2


@pytest.mark.parametrize(
    ("found", "verdict"), [(2.0, Verdict.SUPPORTED), (1.6, Verdict.INCONCLUSIVE), (1.49, Verdict.REFUTED)]
)
def test_quadratic_holds_2_and_excludes_a_half_less(found: float, verdict: Verdict) -> None:
    assert QUADRATIC.judge(Interval(found, found)) == verdict


def test_both_halves_of_a_block_are_equal_at_six_widths() -> None:
    attention, length = Attention(WIDTH), 6 * WIDTH
    whole, scores = forward_flops(Block(WIDTH, attention), length), 2 * products(attention, length, length)
    assert whole == 2 * scores


def test_what_torch_counts_and_what_a_mask_leaves() -> None:
    assert counted(torch.mm, torch.ones(3, 5), torch.ones(5, 7)) == 2 * 3 * 5 * 7
    found = masked()
    assert found["by formula"] == found["by torch"] == 1
    # Of 4 d T (2 d + T) / T FLOPs a token, half of 4 d T are made, and each of T pairs a head has one addition.
    length, heads = 65_536, 12
    share = length / (2 * WIDTH + length)
    assert found["a kernel that skips what is masked"] == pytest.approx(1 - share / 2, abs=1e-4)
    assert found["the mask's additions counted"] == pytest.approx(1 + share * heads / (4 * WIDTH))


@torch.no_grad()
def test_a_window_does_not_grow() -> None:
    mixer = Attention(64, pattern=lambda: SlidingWindow(16))
    sizes = [sum(entry.nbytes for entry in mixer(torch.ones(1, at, 64))[1].values()) for at in SHORT]
    assert len(set(sizes)) == 1
