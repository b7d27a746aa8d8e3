"""The regression task: scores by hand over unequal batches, and rows that count for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from seqlab.batch import LabelledBatch
from seqlab.tasks import Regression
from trainers import loader, quiet_trainer


class FirstFeature(nn.Module):
    def __init__(self, vocab_size: int, num_classes: int, seq_len: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))

    def forward(self, inputs: Tensor, *, pad_mask: Tensor) -> Tensor:
        return self.factor * inputs[:, 0, :1]


def batch(said: list[float], true: list[float], length: int) -> LabelledBatch:
    inputs = torch.tensor(said).float()[:, None, None].repeat(1, length, 2)
    return LabelledBatch(inputs, torch.ones(len(said), length, dtype=torch.bool), torch.tensor(true).float())


def test_scores_are_the_corpuss(tmp_path: Path) -> None:
    task = Regression(2, 20, model=FirstFeature)
    batches = [batch([1, 2, 3], [1, 3, 5], 4), batch([0], [4], 12), batch([9], [torch.nan], 4)]
    trainer = quiet_trainer(tmp_path)
    (scores,) = trainer.validate(task, loader(batches), verbose=False)
    assert scores == pytest.approx(
        {
            "val/loss": (0 + 1 + 4 + 16) / 4,
            "val/mean_absolute_error": (0 + 1 + 2 + 4) / 4,
            "val/loss_by_length/1-8": 5 / 3,
            "val/loss_by_length/9-16": 16,
        }
    )


def test_the_loss_counts_what_has_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Regression(2, 20, model=FirstFeature)
    monkeypatch.setattr(task, "log", lambda *args, **kwargs: None)
    assert task.training_step(batch([1, 2, 7], [1, 4, torch.nan], 3), 0) == 2
    loss = task.training_step(batch([1], [torch.nan], 3), 0)
    loss.backward()
    assert loss == 0 and task.model.factor.grad == 0
    numbered = batch([1, 2, 5], [0, 0, 0], 3)._replace(rows=torch.tensor([4, 1, -1]))
    assert task.predict_step(numbered, 0) == [
        {"row": 4, "number": 1, "squared_error": 1},
        {"row": 1, "number": 2, "squared_error": 4},
    ]


def test_classes_and_labels_are_refused() -> None:
    task, numbers = Regression(2, 20, model=FirstFeature), batch([1, 2], [0, 1], 3)
    for targets in (numbers.targets.long(), numbers.targets[:, None]):
        with pytest.raises(ValueError, match="regression takes a number for each sequence, but this data has classes"):
            task.predict_step(numbers._replace(targets=targets), 0)
