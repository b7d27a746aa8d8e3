"""Numerically stable versions of functions whose obvious formulas lose precision, for any runtime."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.nn.operation import operation


def expm1(x: Tensor) -> Tensor:
    """e^x - 1 for x <= 0, via tanh: this avoids cancellation near 0 and works in runtimes without expm1."""
    t = torch.tanh(x / 2)
    return 2 * t / (1 - t)


def logsigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + e^-x)). PyTorch exports its own as log(sigmoid(x)), in which sigmoid rounds to 1 for large x."""
    # From 40 on, softplus is its argument in float64 too.
    return -F.softplus(-x, threshold=40)


@operation
def raised(x: Tensor) -> Tensor:
    """Marks a parameter whose exponentials and sines a recurrence raises to high powers: a runtime must compute these
    as precisely as PyTorch does."""
    return x


@operation
def running_sum(x: Tensor, dim: int) -> Tensor:
    """Cumulative sum, which PyTorch computes in float64 on the CPU: a runtime must do the same."""
    return x.cumsum(dim)


def at_least_float32(x: Tensor) -> Tensor:
    """x in at least float32; float64 stays float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disables autocast where a rounding error has larger effects, e.g. on all later steps of a recurrence."""
    mixed = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)  # no autocast on meta
    return torch.autocast(x.device.type, enabled=False) if mixed else nullcontext()
