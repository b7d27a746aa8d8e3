"""A fit of limited time, by a clock that each batch moves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from callbacks.tiny_fit import TinyTask, fit
from seqlab.callbacks.max_time import MaxTime


class Slow(TinyTask):
    """A step takes 10 s, a validation 30 s."""

    now = 0.0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.now += 10
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.now += 30


@pytest.mark.parametrize(("minutes", "steps", "seconds"), [(2, 6, 120), (3, 9, 180)])
def test_the_closing_validation_is_counted(
    minutes: int, steps: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation after every 4 steps: 4 steps and a validation are 70 s."""
    task = Slow()
    monkeypatch.setattr(time, "monotonic", lambda: task.now)
    flags: dict[str, Any] = {"check_val_every_n_epoch": None, "val_check_interval": 4, "limit_val_batches": 1}
    fit(tmp_path, [MaxTime(f"00:00:0{minutes}:00")], task=task, num_sanity_val_steps=0, **flags)
    assert (task.trainer.global_step, task.now) == (steps, seconds)
