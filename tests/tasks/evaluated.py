"""Evaluations of a task over batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import lightning as L

from scale.kinds import of_kind
from trainers import loader, quiet_trainer


def validated(task: L.LightningModule, batches: list[Any], data: Any = None) -> dict[str, float]:
    """The scores of a validation; `data` has what a task asks its data module for."""
    trainer = quiet_trainer(Path())
    if data is None:
        (scores,) = trainer.validate(task, loader(batches), verbose=False)
        return dict(scores)
    module: Any = L.LightningDataModule()
    vars(module).update(vars(data), val_dataloader=lambda: loader(batches))
    (scores,) = trainer.validate(task, module, verbose=False)
    return dict(scores)


def with_batch(kind: str, files: Path) -> tuple[Any, Any]:
    """The task of one of `KINDS` and the first batch of its training split."""
    data, task = of_kind(kind, files)
    data.prepare_data()
    data.setup("fit")
    return task, next(iter(data.train_dataloader()))


def trained(task: Any, batch: Any) -> Any:
    """The loss of a training step outside a fit."""
    with patch.object(task, "log"):
        return task.training_step(batch, 0)


def predicted(task: Any, batch: Any, **data: Any) -> Any:
    task._trainer = SimpleNamespace(datamodule=SimpleNamespace(**data))
    return task.predict_step(batch, 0)
