"""A fit of limited time, by a clock that each batch moves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from callbacks.tiny_fit import tiny_trainer
from seqlab.callbacks.max_time import MaxTime

TRAINING, VALIDATION = 10, 30
"""Seconds of a step and of a validation."""


class Slow(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(1))
        self.now = 0.0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.now += TRAINING
        return (batch * self.weights).mean()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.now += VALIDATION

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("minutes", "steps", "seconds"), [(2, 6, 120), (3, 9, 180)])
def test_the_closing_validation_is_counted(
    minutes: int, steps: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation after every 4 steps: 4 steps and a validation are 70 s."""
    task = Slow()
    monkeypatch.setattr(time, "monotonic", lambda: task.now)
    rows: DataLoader[Any] = DataLoader(torch.ones(100, 1))  # type: ignore[arg-type]
    options: dict[str, Any] = {"max_epochs": 1, "val_check_interval": 4, "limit_val_batches": 1}
    trainer = tiny_trainer(tmp_path, [MaxTime(f"00:00:0{minutes}:00")], num_sanity_val_steps=0, **options)
    trainer.fit(task, rows, rows)
    assert (trainer.global_step, task.now) == (steps, seconds)
