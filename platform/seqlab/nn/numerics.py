"""Functions that lose no digits where the obvious formula does, in any runtime."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.nn.operation import operation


def expm1(x: Tensor) -> Tensor:
    """e^x - 1 for x <= 0. As it stands it cancels near 0. tanh does not, and runtimes without expm1 have it."""
    t = torch.tanh(x / 2)
    return 2 * t / (1 - t)


def logsigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + e^-x)). PyTorch exports its own as the logarithm of a sigmoid, which is rounded to 1 for large x."""
    # From 40 on, softplus is its argument in float64 too.
    return -F.softplus(-x, threshold=40)


@operation
def raised(x: Tensor) -> Tensor:
    """A parameter from which a recurrence makes what it raises to high powers: exponentials and sines of it must be as
    precise as PyTorch's are."""
    return x


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or in float64 where it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Turns autocast off, to keep the precision inside: an error of one step would carry over to all later ones."""
    mixed = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)  # of which it knows nothing
    return torch.autocast(x.device.type, enabled=False) if mixed else nullcontext()
