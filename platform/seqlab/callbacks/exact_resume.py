"""Makes a killed and resumed fit bit-identical to an uninterrupted one. See docs/exact-resume.md."""

from __future__ import annotations

import random
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback

from seqlab.parallel import data_parallel


class ExactResume(Callback):
    """Derives the state of every random generator instead of saving it, and corrects Lightning's progress counters.

    Before each micro-batch the generators of torch (CPU and the model's device), NumPy and `random` are seeded from
    (seed, epoch, batch index, data-parallel rank). Earlier draws, in validation, tracking or a killed process, cannot
    matter. The batch index counts micro-batches, because the global step does not change during accumulation.

    Args:
        seed: seed of the run, at least 0.
    """

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        self.seed = seed

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        epoch = trainer.fit_loop.epoch_progress.current.ready - 1
        rank = data_parallel(trainer).rank
        words = np.random.SeedSequence((self.seed, epoch, batch_idx, rank)).generate_state(4)
        low, high, for_numpy, for_random = words.tolist()
        # torch.manual_seed does the same for all devices, at 100 times the cost.
        torch.default_generator.manual_seed(high << 32 | low)
        if pl_module.device.type != "cpu":
            torch.get_device_module(pl_module.device).manual_seed(high << 32 | low)
        np.random.seed(for_numpy)
        random.seed(for_random)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Rewrites the loop counters where Lightning would not continue at the next micro-batch.

        At an epoch's end Lightning would train one batch too many or skip an epoch, depending on `max_steps`. It also
        treats an epoch that `max_steps` cut short as finished.
        """
        loops = checkpoint["loops"]["fit_loop"]
        epochs, batches = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
        if batches["is_last_batch"] or batches["current"]["ready"] >= trainer.num_training_batches:
            _set_done(epochs, unfinished=0)
            _set_done(batches, unfinished=0)
            batches["current"] = dict.fromkeys(batches["current"], 0)
            batches["is_last_batch"] = False
        elif epochs["current"]["processed"] == epochs["current"]["ready"] > 0:
            _set_done(epochs, unfinished=1)
            for count in (batches["current"], batches["total"]):
                count["completed"] = count["processed"] - 1
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epoch_loop = trainer.fit_loop.epoch_loop
        if epoch_loop.batch_progress.current.ready == 0:
            # At the start of an epoch there is nothing to restart, and Lightning would try to skip a validation.
            epoch_loop.restarting = False


def _set_done(progress: dict[str, Any], *, unfinished: int) -> None:
    """Marks everything that is ready as done, except the last `unfinished`."""
    for count in (progress["current"], progress["total"]):
        count["started"] = count["ready"]
        count["processed"] = count["completed"] = count["ready"] - unfinished
