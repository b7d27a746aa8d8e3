"""Validation loss of a model and of its bundle, on the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqlab.batch import TokenBatch, alone
from seqlab.comparison.statistics import over_examples, resampled
from seqlab_export.reports.bundle_model import BundleModel, with_model
from seqlab_export.runner.report import ValidationLoss

BATCHES = 16
"""Number of batches, evenly spaced over the split, from which rows are taken."""

MOST_TARGETS = 2**14
"""Maximum number of targets, about."""

MOST_WORK = 2**38
"""Maximum product of targets and weights, about: a minute on two cores."""


@torch.inference_mode()
def validation_loss(task: Any, datamodule: Any, bundle: Path) -> ValidationLoss:
    """Mean loss of a task's model and of its bundle over a part of the validation split, with the 95% interval of the
    difference by a paired bootstrap over rows.

    Args:
        datamodule: data module whose validation loader yields batches of `seqlab.batch`; None = the run has none.

    Raises:
        ValueError: there are fewer than two rows with targets.
    """
    if datamodule is None:
        raise ValueError("the run has no data")
    datamodule.prepare_data()
    datamodule.setup("validate")
    weights = sum(weight.numel() for weight in task.model.parameters())
    served, sums = with_model(task, BundleModel(bundle, task.model)), []
    for rows in _spread(datamodule.val_dataloader()):
        left = min(MOST_TARGETS, MOST_WORK // weights) / BATCHES
        for row in rows:
            losses = task.losses(row)
            sums.append([float(losses.double().sum()), float(served.losses(row).double().sum()), losses.numel()])
            if (left := left - losses.numel()) <= 0:
                break
    parts = np.array([row for row in sums if row[-1]]).reshape(-1, 3)
    if len(parts) < 2:
        raise ValueError(f"the validation split has {len(parts)} rows with targets, and an interval takes two")
    drawn, (model, served_loss, count) = resampled(parts), parts.sum(axis=0)
    change = over_examples((served_loss - model) / count, (drawn[:, 1] - drawn[:, 0]) / drawn[:, 2], len(parts))
    return ValidationLoss(model / count, served_loss / count, float(change.half_width), int(count), len(parts))


def _spread(loader: Any) -> Iterator[Iterator[Any]]:
    """Evenly spaced batches, each as batches of one row."""
    for batch in islice(loader, 0, None, max(len(loader) // BATCHES, 1)):
        batch = alone(batch) if isinstance(batch, TokenBatch) else batch
        yield (_row(batch, place) for place in range(len(batch.targets)))


def _row(batch: Any, place: int) -> Any:
    fields = {name: value for name, value in batch._asdict().items() if value is not None}
    return batch._replace(**{name: value[place : place + 1] for name, value in fields.items()})
