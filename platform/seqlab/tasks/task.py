"""What every task shares: its model, and how it is optimised."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral
from typing import Any

import lightning as L
from torch import nn
from torchmetrics import Metric, MetricCollection

from seqlab.tasks.optim import adamw, scheduled


class Task(L.LightningModule):
    """A model under AdamW, with a linear warm-up and then a cosine. A subclass gives `training_step`, `evaluate` and
    `log_scores` for validation and test, and `predictions`.

    Args:
        lr: peak learning rate of AdamW.
        weight_decay: on matrices and embeddings only.
        betas: AdamW's moment decay rates.
        warmup_steps: optimiser steps of linear warm-up; a cosine follows.
        min_lr_ratio: where the cosine ends, as a fraction of lr.

    Attributes:
        chooses_one: whether the logits at a place are of one choice among them, as a token or a class is.
    """

    chooses_one = True

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.99),
        warmup_steps: int = 100,
        min_lr_ratio: float = 0.1,
    ) -> None:
        super().__init__()
        if lr <= 0 or warmup_steps < 0 or not 0 <= min_lr_ratio <= 1:
            raise ValueError(
                f"lr must be positive, warmup_steps at least 0 and min_lr_ratio in [0, 1]; got {lr}, "
                f"{warmup_steps} and {min_lr_ratio}"
            )
        self.model = model
        self.lr = lr
        self.weight_decay = weight_decay
        self.betas = betas
        self.warmup_steps = warmup_steps
        self.min_lr_ratio = min_lr_ratio

    @abstractmethod
    def evaluate(self, batch: Any) -> None:
        """Adds a batch to what is scored."""

    @abstractmethod
    def log_scores(self, stage: str) -> None:
        """Logs the scores of all batches of "val" or "test"."""

    def forget(self) -> None:
        """Begins the next evaluation afresh: resets every metric that is an attribute of the task."""
        for part in self.children():
            if isinstance(part, Metric | MetricCollection):
                part.reset()

    @abstractmethod
    def predictions(self, batch: Any) -> list[dict[str, Any]]:
        """What the model says of each row of a batch, by names and in values that JSON has."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        self.log_scores("val")
        self.forget()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluate(batch)

    def on_test_epoch_end(self) -> None:
        self.log_scores("test")
        self.forget()

    def predict_step(self, batch: Any, batch_idx: int) -> list[dict[str, Any]]:
        """`predictions` of the rows that count, each with its place in the split as "row", where that is known."""
        said = self.predictions(batch)
        if batch.rows is None:
            return said
        return [{"row": row, **one} for row, one in zip(batch.rows.tolist(), said, strict=True) if row >= 0]

    def configure_optimizers(self) -> Any:
        optimizer = adamw(self.model, lr=self.lr, weight_decay=self.weight_decay, betas=self.betas)
        scheduler = scheduled(
            optimizer,
            warmup_steps=self.warmup_steps,
            total_steps=self._total_steps(),
            min_ratio=self.min_lr_ratio,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _total_steps(self) -> int | None:
        """Optimiser steps of the whole fit; None where nothing but time ends it.

        Lightning's `estimated_stepping_batches` would build the data loaders before their state is restored.
        """
        trainer = self.trainer
        max_steps = None if trainer.max_steps == -1 else trainer.max_steps
        if trainer.max_epochs in (None, -1) or trainer.datamodule is None:  # type: ignore[attr-defined]
            return max_steps
        num_batches = len(trainer.datamodule.train_dataloader())  # type: ignore[attr-defined]
        limit = trainer.limit_train_batches
        num_batches = min(num_batches, limit) if isinstance(limit, int) else int(num_batches * limit)
        assert trainer.max_epochs is not None
        in_epochs = trainer.max_epochs * math.ceil(num_batches / trainer.accumulate_grad_batches)
        return in_epochs if max_steps is None else min(in_epochs, max_steps)


def check_told(task: str, **numbers: int | None) -> None:
    """Refuses data that does not tell a number which a task needs.

    Raises:
        ValueError: a number is None, or no whole number from 1 on.
    """
    for name, number in numbers.items():
        if not isinstance(number, Integral) or number < 1:
            tells = "none" if number is None else repr(number)
            raise ValueError(
                f"{task} needs data that tells its {name}, this tells {tells}; a data module tells it as an attribute "
                "of that name, a whole number from 1 on"
            )
