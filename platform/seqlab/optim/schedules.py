"""Schedules: the learning rate as a share of its peak, step by step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch.optim.lr_scheduler import LambdaLR


class Schedule(ABC):
    """The learning rate after the warm-up."""

    @abstractmethod
    def factor(self, step: int, total: int | None) -> float:
        """The share of the peak at an optimiser step, from 0 on, of `total`; None = the end is unknown."""


class Cosine(Schedule):
    """Half a cosine down to the end of the fit (Loshchilov & Hutter 2017); the peak where the end is unknown.

    Args:
        min_lr_ratio: where it ends, as a share of the peak.

    Raises:
        ValueError: that is not from 0 to 1.
    """

    def __init__(self, *, min_lr_ratio: float = 0.1) -> None:
        if not 0 <= min_lr_ratio <= 1:
            raise ValueError(f"min_lr_ratio must be in [0, 1], got {min_lr_ratio}")
        self.min_lr_ratio = min_lr_ratio

    def factor(self, step: int, total: int | None) -> float:
        if total is None:
            return 1.0
        progress = min(1.0, step / max(1, total))
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Constant(Schedule):
    """The peak, to the end."""

    def factor(self, step: int, total: int | None) -> float:
        return 1.0


def scheduled(
    optimizer: torch.optim.Optimizer, schedule: Schedule, *, warmup_steps: int, total_steps: int | None
) -> LambdaLR:
    """`optimizer` under a linear warm-up and then the schedule, one step an optimiser step.

    Args:
        total_steps: of the whole fit, warm-up and all; None = unknown.
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        return schedule.factor(step - warmup_steps, None if total_steps is None else total_steps - warmup_steps)

    return LambdaLR(optimizer, factor)
