"""Regression: predicts one number per sequence.

B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric

from seqlab.batch import LabelledBatch
from seqlab.nn.numerics import at_least_float32
from seqlab.tasks.metrics import Mean, MeanByLength
from seqlab.tasks.task import Task, check_told


class Regression(Task):
    """Trains on the mean squared error, and reports it as the loss, overall and by length, and the mean absolute error.

    Args:
        num_features: number of features per position; set by the data module.
        seq_len: maximum input length in positions; set by the data module.
        model: called with num_features, 1 (the number of outputs) and seq_len.
        optim: lr, optimizer, schedule and other options of `Task`.
    """

    chooses_one = False
    whole_numbers = "numbers"
    next_command = "seqlab compare"
    score_names = ("loss", "mean_absolute_error", "loss_by_length/*")

    def __init__(
        self,
        num_features: int,
        seq_len: int,
        *,
        model: Callable[[int, int, int], nn.Module],
        **optim: Any,
    ) -> None:
        check_told("regression", num_features=num_features, seq_len=seq_len)
        super().__init__(model(num_features, 1, seq_len), **optim)
        self.seq_len = seq_len

    def loss(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        real = batch.targets.isfinite()
        squared = (self._predicted(batch) - batch.targets.nan_to_num()).square()
        return (squared * real).sum(), real.sum()

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """Predictions: the "number" predicted for each sequence, and its "squared_error"."""
        numbers = self._predicted(batch)
        squared = (numbers - batch.targets).square()
        found = zip(numbers.tolist(), squared.tolist(), strict=True)
        return [{"number": number, "squared_error": error} for number, error in found]

    def scores(self, split: str) -> dict[str, Metric]:
        return {
            "loss": Mean(),
            "mean_absolute_error": Mean(),
            "loss_by_length": MeanByLength("loss_by_length", self.buckets),
        }

    def evaluate(self, batch: LabelledBatch) -> dict[str, Any]:
        real = batch.targets.isfinite()
        predicted, targets = self._predicted(batch)[real], batch.targets[real]
        squared = F.mse_loss(predicted, targets, reduction="none")
        return {
            "loss": squared,
            "mean_absolute_error": (predicted - targets).abs(),
            "loss_by_length": (squared, batch.pad_mask.sum(dim=1)[real]),
        }

    def _predicted(self, batch: LabelledBatch) -> Tensor:
        """Predicted numbers (B,), in at least float32.

        Raises:
            ValueError: the targets are not one floating-point number per sequence.
        """
        if batch.targets.ndim != 1 or not batch.targets.is_floating_point():
            raise ValueError(
                "regression needs one number per sequence, but this data has classes or labels; set data.whole_numbers "
                "to numbers to read whole numbers as targets"
            )
        y: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        return at_least_float32(y.squeeze(-1))
