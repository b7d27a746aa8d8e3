"""Regression that trains on the absolute error.

B batch.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from seqlab.batch import LabelledBatch
from seqlab.tasks.regression import Regression


class Median(Regression):
    """Trains on the mean absolute error, and reports it as the loss."""

    score_names = Regression.score_names

    def loss(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        real = batch.targets.isfinite()
        errors = (self._predicted(batch) - batch.targets.nan_to_num()).abs()
        return (errors * real).sum(), real.sum()

    def evaluate(self, batch: LabelledBatch) -> dict[str, Any]:
        scores = super().evaluate(batch)
        return scores | {"loss": scores["mean_absolute_error"]}
