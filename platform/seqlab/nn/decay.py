"""How the decays of selective state spaces start out (Gu & Dao 2023, section 3.6, and the authors' code)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def uniform_rates(size: int) -> Tensor:
    """(size,) rates of decay, uniform in 1 .. 16."""
    return torch.empty(size).uniform_(1.0, 16.0)


def log_uniform_steps(size: int) -> Tensor:
    """(size,) biases whose softplus, the step, is log-uniform in 0.001 .. 0.1."""
    step = torch.empty(size).uniform_(math.log(0.001), math.log(0.1)).exp()
    return step + torch.log(-torch.expm1(-step))
