"""What the measure of `order` says of models whose answer is known."""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.studies.order import VOCAB, Model, at_last


def counted(weights: Tensor) -> Model:
    """The sum of one-hot tokens, each times the weight (T,) of its place."""
    return lambda tokens: (torch.nn.functional.one_hot(tokens, VOCAB) * weights[:, None]).cumsum(1).double()


def test_a_sum_is_blind_and_a_weighted_sum_is_not() -> None:
    torch.manual_seed(0)
    assert at_last(counted(torch.ones(16, dtype=torch.float64))) == 0
    assert 0.3 < at_last(counted(torch.arange(16, dtype=torch.float64))) < 1.5
    little = torch.ones(16, dtype=torch.float64)
    little[3] += 1e-6
    assert 1e-8 < at_last(counted(little)) < 1e-5
