"""A validation for a fit that would end before its first."""

from __future__ import annotations

import math

import lightning as L
from lightning.pytorch.callbacks import Callback


class ValidateOnce(Callback):
    """Validates at the end of a fit that is shorter than its validation interval: without, it would have no best."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.val_check_batch is None:  # by the clock
            return
        epochs = trainer.check_val_every_n_epoch or 1
        first = trainer.val_check_batch + (epochs - 1) * trainer.num_training_batches
        if (total := num_batches(trainer)) < first:
            trainer.check_val_every_n_epoch = None  # batches are counted over all epochs
            trainer.val_check_batch = total


def num_batches(trainer: L.Trainer) -> float:
    """How many micro-batches a whole fit reads on each rank; infinite where nothing is known to end it."""
    epoch, accumulated = trainer.num_training_batches, trainer.accumulate_grad_batches
    max_epochs, max_steps = trainer.max_epochs, trainer.max_steps
    by_epochs = math.inf if max_epochs in (None, -1) else max_epochs * epoch
    if max_steps == -1:
        return by_epochs
    if epoch == math.inf:
        return max_steps * accumulated
    # An epoch's last step may be of fewer micro-batches.
    epochs, steps = divmod(max_steps, math.ceil(epoch / accumulated))
    return min(by_epochs, epochs * epoch + steps * accumulated)
