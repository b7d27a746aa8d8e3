"""Measurements of a stack, on layers whose answer is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqlab.studies.layers import DEPTH, Mean, Squash, spread, stack, through


def test_a_layer_that_does_nothing() -> None:
    spreads, gradients = through([nn.Identity() for _ in range(DEPTH)])
    assert len(set(spreads)) == len(set(gradients)) == 1 and 0.9 < spreads[0] < 1


def test_the_mean_makes_equal_and_a_slope_of_a_half_halves() -> None:
    spreads, _ = through([Mean()])
    assert spreads[0] < 1e-15
    _, gradients = through([Squash() for _ in range(DEPTH)])
    assert gradients[0] < gradients[-1] * 0.5 ** (DEPTH - 2)


def test_spread_by_hand() -> None:
    x = torch.tensor([[[3.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)
    assert spread(x) == pytest.approx((2 / 10) ** 0.5)


def test_the_forms_are_what_they_are_called() -> None:
    from seqlab.nn.feed_forward import NoFeedForward
    from seqlab.nn.residual import NoResidual

    torch.manual_seed(0)
    whole, without = through(stack())[0][-1], through(stack(residual=NoResidual, ffn=NoFeedForward))[0][-1]
    assert whole > 0.3 and without < 1e-6
