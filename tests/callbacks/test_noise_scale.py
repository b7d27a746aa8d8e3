"""The noise scale of gradients whose mean and covariance are known, and where it cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from seqlab.callbacks.noise_scale import GradientNoiseScale
from trainers import loader, quiet_trainer

MEAN, DEVIATION, WIDTH, ROWS = 0.5, 2.0, 10, 4


class Known(L.LightningModule):
    """The gradient of a row is the row, whatever the weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(WIDTH))
        self.num_tokens = torch.tensor(ROWS)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return (batch @ self.weights).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(folder: Path, batches: int, accumulated: int) -> L.Trainer:
    options: dict[str, Any] = {"max_epochs": 1, "accumulate_grad_batches": accumulated, "limit_val_batches": 0}
    trainer = quiet_trainer(folder, callbacks=[GradientNoiseScale()], **options)
    drawn = torch.randn(batches, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    trainer.fit(Known(), loader(MEAN + DEVIATION * drawn))
    return trainer


@pytest.mark.slow
def test_it_is_the_trace_over_the_squared_norm(tmp_path: Path) -> None:
    """Rows, each one token: DEVIATION^2 WIDTH / (MEAN^2 WIDTH) = 16. An epoch's last step has 1 of 8 micro-batches."""
    found = fitted(tmp_path, batches=8001, accumulated=8).callback_metrics["train/noise_scale"].item()
    assert found == pytest.approx(16, rel=0.1)


def test_one_micro_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give --trainer\.accumulate_grad_batches of at least 2"):
        fitted(tmp_path, batches=1, accumulated=1)
