"""Learning-rate schedules: the learning rate at each optimiser step, as a fraction of its peak."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch.optim.lr_scheduler import LambdaLR


class Schedule(ABC):
    """Learning rate after the warm-up.

    Attributes:
        warmup_steps: number of preceding warm-up steps; set by `scheduled`.
    """

    warmup_steps = 0

    @abstractmethod
    def factor(self, step: int, total: int | None) -> float:
        """Fraction of the peak at an optimiser step, counted from 0, out of `total`; None = unknown."""


class Cosine(Schedule):
    """Half a cosine down to the end of the fit (Loshchilov & Hutter 2017); constant at the peak if the end is unknown.

    Args:
        min_lr_ratio: final learning rate as a fraction of the peak, in [0, 1].

    Raises:
        ValueError: min_lr_ratio is not in [0, 1].
    """

    def __init__(self, *, min_lr_ratio: float = 0.1) -> None:
        self.min_lr_ratio = _share("min_lr_ratio", min_lr_ratio)

    def factor(self, step: int, total: int | None) -> float:
        if total is None:
            return 1.0
        progress = min(1.0, step / max(1, total))
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class Linear(Schedule):
    """Linear decay to the end of the fit (Devlin et al. 2019, "BERT"); constant at the peak if the end is unknown.

    Args:
        min_lr_ratio: final learning rate as a fraction of the peak, in [0, 1].

    Raises:
        ValueError: min_lr_ratio is not in [0, 1].
    """

    def __init__(self, *, min_lr_ratio: float = 0.0) -> None:
        self.min_lr_ratio = _share("min_lr_ratio", min_lr_ratio)

    def factor(self, step: int, total: int | None) -> float:
        if total is None:
            return 1.0
        return 1 - (1 - self.min_lr_ratio) * min(1.0, step / max(1, total))


class WarmupStableDecay(Schedule):
    """Constant at the peak, then linear decay over the last steps (Hu et al. 2024, "MiniCPM"); constant if the end is
    unknown.

    Args:
        decay: fraction of the steps after the warm-up over which the rate decays, in [0, 1].
        min_lr_ratio: final learning rate as a fraction of the peak, in [0, 1].

    Raises:
        ValueError: decay or min_lr_ratio is not in [0, 1].
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
    """Vaswani et al. (2017), equation 3, including the warm-up, as a fraction of the peak: min(sqrt(w / n), n / w) at
    the n-th step, where w is the number of warm-up steps plus one. Independent of the end of the fit."""

    def factor(self, step: int, total: int | None) -> float:
        peak = self.warmup_steps + 1
        return math.sqrt(peak / (peak + step))


class Constant(Schedule):
    """Constant at the peak."""

    def factor(self, step: int, total: int | None) -> float:
        return 1.0


def scheduled(
    optimizer: torch.optim.Optimizer, schedule: Schedule, *, warmup_steps: int, total_steps: int | None
) -> LambdaLR:
    """Scheduler for `optimizer`: linear warm-up, then the schedule; advances once per optimiser step.

    Args:
        total_steps: number of optimiser steps in the whole fit, including the warm-up; None = unknown.
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
