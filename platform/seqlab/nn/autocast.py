"""Recurrences in the precision of their weights, whatever autocast says."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """What is computed inside keeps its precision: an error of a step would be carried on to all later ones."""
    mixed = torch.is_autocast_enabled(x.device.type)
    return torch.autocast(x.device.type, enabled=False) if mixed else nullcontext()
