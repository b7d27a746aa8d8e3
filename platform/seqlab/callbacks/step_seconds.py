"""Measured duration of a training step."""

from __future__ import annotations

import statistics
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from seqlab.budgets.match import CostEstimate
from seqlab.callbacks.finders import QUIETLY
from seqlab.callbacks.tokens_per_step import TokensPerStep
from seqlab.nn.stack import forget_activations

WARM_UP, TIMED = 3, 10
"""Optimiser steps for warm-up and for timing."""


def step_seconds(task: Any, data: Any, options: Any) -> CostEstimate:
    """Median duration in seconds of optimiser steps of a single-process fit, data loading included, with half the
    interquartile range relative to the median.

    Args:
        options: options of the fit, from which device, precision and accumulation are taken.

    Raises:
        ValueError: there are several processes, the device has too little memory, or the data has too few steps.
    """
    trainer, tokens, times = options.trainer, options.tokens_per_step, _StepTimes()
    alone = L.Trainer(
        accelerator=trainer.accelerator,
        devices=trainer.devices,
        num_nodes=trainer.num_nodes,
        precision=trainer.precision,
        accumulate_grad_batches=trainer.accumulate_grad_batches,
        gradient_clip_val=trainer.gradient_clip_val,
        gradient_clip_algorithm=trainer.gradient_clip_algorithm,
        max_epochs=-1,
        max_steps=WARM_UP + TIMED,
        callbacks=[times] if tokens is None else [TokensPerStep(tokens), times],
        use_distributed_sampler=False,
        **QUIETLY,
    )
    if alone.world_size > 1:
        raise ValueError("--match seconds measures one process; find the number with --trainer.devices 1, then give it")
    if options.checkpoint_activations:
        forget_activations(task.model)
    if options.compile:
        task.model.compile()
    try:
        alone.fit(task, datamodule=data)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"--match seconds: the device has too little memory: {str(error).splitlines()[0]}") from error
    quarters = statistics.quantiles(times.seconds, n=4)
    return CostEstimate(quarters[1], (quarters[2] - quarters[0]) / 2 / quarters[1])


class _StepTimes(Callback):
    """Attributes:
    seconds: duration of each step after the warm-up.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._done, self._ended = 0, 0.0

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if trainer.global_step == self._done:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        now, self._done = time.perf_counter(), trainer.global_step
        if self._done > WARM_UP:
            self.seconds.append(now - self._ended)
        self._ended = now
