"""Optimiser steps with a fixed number of tokens and a variable number of batches."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from seqlab.parallel import data_parallel
from seqlab.tasks.task import Task


class TokensPerStep(Callback):
    """Accumulates gradients until all ranks together have read a given number of real tokens, or an epoch ends. The
    loss of a step is the mean over all its counted targets, not the mean of batch means. The batches of a step depend
    only on the data, so that a fit resumes exactly.

    Args:
        tokens: minimum number of real tokens per optimiser step over all ranks, at least 1.

    Raises:
        ValueError: tokens is below 1; or, when the fit starts, the model is not a `Task`, other gradient accumulation
            is set, or `max_steps`, which the learning rate schedule requires, is missing.
    """

    def __init__(self, tokens: int) -> None:
        if tokens < 1:
            raise ValueError(f"tokens_per_step must be at least 1, got {tokens}")
        self.tokens = tokens
        self._step, self._read, self._counted = -1, 0, 0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if not isinstance(pl_module, Task):
            raise ValueError(f"tokens_per_step needs a Task, and {type(pl_module).__name__} is not one")
        if trainer.accumulate_grad_batches != 1:
            raise ValueError("tokens_per_step accumulates by itself; leave out trainer.accumulate_grad_batches")
        if trainer.max_steps == -1:
            raise ValueError("tokens_per_step needs trainer.max_steps: the number of steps in an epoch is unknown")
        pl_module.tokens_per_step = self.tokens
        self._step = -1
        setattr(trainer.fit_loop.epoch_loop, "_accumulated_batches_reached", lambda: self._read >= self.tokens)  # noqa: B010

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        pl_module.tokens_per_step = None
        trainer.fit_loop.epoch_loop.__dict__.pop("_accumulated_batches_reached", None)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        pl_module.begins_step = trainer.global_step != self._step
        if pl_module.begins_step:
            self._step, self._read, self._counted = trainer.global_step, 0, 0
        (read,) = data_parallel(trainer).sum(batch.num_tokens)
        self._read += int(read)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._counted += int(pl_module.num_counted)

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: torch.optim.Optimizer) -> None:
        counted = self._counted + int(pl_module.num_counted)  # of the previous batches and of the last one
        for weight in pl_module.parameters():
            if weight.grad is not None:
                weight.grad.mul_(self.tokens / max(1, counted))
