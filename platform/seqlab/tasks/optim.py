"""AdamW with decay groups, and warm-up followed by a cosine."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR


def adamw(model: nn.Module, *, lr: float, weight_decay: float, betas: tuple[float, float]) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) that decays the weights of matrices and embeddings: what has two dimensions and
    `weight` in its name. Biases, gains, decay rates and the like are left alone."""
    trained = [(name.rpartition(".")[2], p) for name, p in model.named_parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": [], "weight_decay": weight_decay}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in trained:
        groups[0 if parameter.dim() >= 2 and "weight" in name else 1]["params"].append(parameter)
    return AdamW(groups, lr=lr, betas=betas)


def warmup_cosine(step: int, *, warmup_steps: int, total_steps: int | None, min_ratio: float) -> float:
    """The factor on the learning rate at `step`: linear up to 1, then a cosine (Loshchilov & Hutter 2017) down to
    `min_ratio` at total_steps; constant after the warm-up where the end is unknown (None)."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if total_steps is None:
        return 1.0
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


def scheduled(
    optimizer: torch.optim.Optimizer, *, warmup_steps: int, total_steps: int | None, min_ratio: float
) -> LambdaLR:
    """`optimizer` under `warmup_cosine`, one step an optimiser step."""

    def factor(step: int) -> float:
        return warmup_cosine(step, warmup_steps=warmup_steps, total_steps=total_steps, min_ratio=min_ratio)

    return LambdaLR(optimizer, factor)
