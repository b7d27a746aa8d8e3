"""Schedules: the learning rate as a share of its peak, step by step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch.optim.lr_scheduler import LambdaLR


class Schedule(ABC):
    """The learning rate after the warm-up.

    Attributes:
        warmup_steps: of the warm-up before it, as `scheduled` has it.
    """

    warmup_steps = 0

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
        self.min_lr_ratio = _share("min_lr_ratio", min_lr_ratio)

    def factor(self, step: int, total: int | None) -> float:
        if total is None:
            return 1.0
        progress = min(1.0, step / max(1, total))
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Linear(Schedule):
    """A straight line down to the end of the fit (Devlin et al. 2019, "BERT"); the peak where the end is unknown.

    Args:
        min_lr_ratio: where it ends, as a share of the peak.

    Raises:
        ValueError: that is not from 0 to 1.
    """

    def __init__(self, *, min_lr_ratio: float = 0.0) -> None:
        self.min_lr_ratio = _share("min_lr_ratio", min_lr_ratio)

    def factor(self, step: int, total: int | None) -> float:
        if total is None:
            return 1.0
        return 1 - (1 - self.min_lr_ratio) * min(1.0, step / max(1, total))


class WarmupStableDecay(Schedule):
    """The peak, and a straight line down over the last steps (Hu et al. 2024, "MiniCPM"); the peak where the end is
    unknown.

    Args:
        decay: over which share of the steps after the warm-up.
        min_lr_ratio: where it ends, as a share of the peak.

    Raises:
        ValueError: one of them is not from 0 to 1.
    """

    def __init__(self, *, decay: float = 0.2, min_lr_ratio: float = 0.0) -> None:
        self.decay, self.min_lr_ratio = _share("decay", decay), _share("min_lr_ratio", min_lr_ratio)

    def factor(self, step: int, total: int | None) -> float:
        if total is None:
            return 1.0
        decayed = round(self.decay * total)
        fallen = min(1.0, max(0, step - (total - decayed)) / max(1, decayed))
        return 1 - (1 - self.min_lr_ratio) * fallen


class InverseSquareRoot(Schedule):
    """With the warm-up, Vaswani et al. (2017), equation 3, as a share of its peak: of n steps, min(sqrt(w / n), n / w),
    where w is one more than the steps of the warm-up. The end of the fit changes nothing."""

    def factor(self, step: int, total: int | None) -> float:
        peak = self.warmup_steps + 1
        return math.sqrt(peak / (peak + step))


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

    schedule.warmup_steps = warmup_steps

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        return schedule.factor(step - warmup_steps, None if total_steps is None else total_steps - warmup_steps)

    return LambdaLR(optimizer, factor)


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")
    return value
