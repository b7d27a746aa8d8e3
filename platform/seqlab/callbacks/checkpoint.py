"""Checkpoint schedule and contents, and the closing validation that a best checkpoint requires."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor

from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.callbacks.stopping import StoppedError, StopSignals
from seqlab.config.configs import told_by
from seqlab.config.errors import sentence
from seqlab.parallel import layout


class Checkpoints(ModelCheckpoint):
    """Keeps `best.ckpt`, by the monitored metric, and `last.ckpt`, from which a fit resumes exactly.

    `last` is written every N optimiser steps, when the previous one is some minutes old, and at the end of each epoch.
    It is never written during gradient accumulation or on an epoch's last batch, because the epoch end follows. Where a
    validation is due, `last` is written after it, so that a resumed fit neither skips nor repeats one. `best` is
    written after a validation. Both go to the logger's `checkpoint_dir`, or to Lightning's default folder.

    A signal (`seqlab.callbacks.stopping`) stops the fit at the next of these points, after writing `last`. All ranks
    stop at the same step.

    `checkpoint["seqlab"]` holds: "config", the resolved configuration; "told", the numbers that the data module passes
    to the task, and its "labels", "tokenizer" and "source_tokenizer"; "run_id", the logger's run; "layout", the process
    layout that wrote the checkpoint. Missing entries are None.

    Args:
        config: resolved configuration, JSON values only.
        every_n_steps: optimiser steps between writes of `last`.
        every_n_minutes: maximum minutes between writes of `last`, exceeded only by a validation or a longer step.
        monitor: logged metric; lower is better.

    Attributes:
        saved_step: optimiser step of `last`.

    Raises:
        StoppedError: from the fit, after a signal.
    """

    def __init__(
        self,
        *,
        config: dict[str, Any] | None = None,
        every_n_steps: int = 500,
        every_n_minutes: float = 5.0,
        monitor: str = "val/loss",
    ) -> None:
        if every_n_steps < 1:
            raise ValueError(f"--checkpoint_every must be at least 1, got {every_n_steps}")
        if not every_n_minutes > 0:
            raise ValueError(f"--checkpoint_minutes must be above 0, got {every_n_minutes}")
        super().__init__(monitor=monitor, filename="best", save_last=True, enable_version_counter=False)
        self.every_n_steps, self.every_n_minutes = every_n_steps, every_n_minutes
        self.config = config or {}
        json.dumps(self.config)
        self.saved_step, self._saved_at = 0, 0.0
        self._signals, self._stopped_by = StopSignals(), 0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            folder = getattr(trainer.logger, "checkpoint_dir", None)
            if isinstance(folder, str | Path):
                self.dirpath = str(folder)
            super().setup(trainer, pl_module, stage)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        tokenizers = {name: getattr(datamodule, name, None) for name in ("tokenizer", "source_tokenizer")}
        checkpoint["seqlab"] = {
            "config": self.config,
            "labels": getattr(datamodule, "labels", None),
            "told": told_by(datamodule),
            **{name: None if found is None else found.to_dict() for name, found in tokenizers.items()},
            "run_id": getattr(trainer.logger, "run_id", None),
            "layout": layout(trainer),
        }

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Refuses to resume in a process layout that `check_layout` rejects, or from averaged weights without
        `AveragedWeights`."""
        if trainer.state.fn == "fit":
            check_layout(checkpoint, trainer)
        averages = any(isinstance(callback, AveragedWeights) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        if trainer.state.fn == "fit" and not averages and AveragedWeights.__name__ in checkpoint.get("callbacks", {}):
            raise ValueError(
                "its weights are averages: resume it with --ema, or start a new fit from them with --init_from"
            )

    @property
    def last(self) -> Path | None:
        """Path of `last.ckpt`, if it exists."""
        path = None if self.dirpath is None else Path(self._path("last"))
        return path if path is not None and path.exists() else None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.saved_step, self._saved_at = trainer.global_step, time.monotonic()
        self._stopped_by = 0
        self._signals.catch()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # Not raised where the checkpoint is written, because Lightning logs that step afterwards.
        if self._stopped_by:
            _finish_writing(trainer)
            raise StoppedError(self._stopped_by)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not _ends_epoch(trainer) and not _validation_follows(trainer):
            self._save_last_if_due(trainer)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._signals.during = "validation"
        if self._signals.received:  # in the step before it
            self._signals.say()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._signals.during = "step"
        if trainer.state.fn == "fit" and not trainer.sanity_checking and not _ends_epoch(trainer):
            self._save_best_if_better(trainer)
            self._save_last_if_due(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._save_best_if_better(trainer)
        _, self._stopped_by = self._asked(trainer)
        self._save_last(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Waits for pending writes. The end of the last epoch has already written `last`."""
        self._signals.release()
        _finish_writing(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._signals.release()
        try:
            _finish_writing(trainer)
        except Exception as error:  # do not mask the error that ended the fit
            print(f"seqlab: {sentence(error)}", file=sys.stderr, flush=True)

    def state_dict(self) -> dict[str, Any]:
        """Best score only; paths derive from the folder, so that a run can be moved."""
        return {"best_model_score": self.best_model_score}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the best score if its checkpoint is in this folder; a new run starts without one."""
        fitting = self.dirpath is not None
        if fitting and state_dict["best_model_score"] is not None and Path(self._path("best")).exists():
            self._set_best(state_dict["best_model_score"])

    def _save_best_if_better(self, trainer: L.Trainer) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        assert self.monitor is not None
        score = float(trainer.callback_metrics.get(self.monitor, math.nan))
        best = math.inf if self.best_model_score is None else float(self.best_model_score)
        # All ranks save together, but a metric may be logged on rank 0 only.
        better, score = trainer.strategy.broadcast((score < best, score))
        if better:
            self._set_best(torch.tensor(score, dtype=torch.float64))
            self._save_checkpoint(trainer, self.best_model_path)

    def _set_best(self, score: Tensor) -> None:
        path = self._path("best")
        self.best_model_path = self.kth_best_model_path = path
        self.best_model_score = self.current_score = self.kth_value = score
        self.best_k_models = {path: score}

    def _save_last_if_due(self, trainer: L.Trainer) -> None:
        if trainer.fit_loop.epoch_loop._should_accumulate():
            return
        late, self._stopped_by = self._asked(trainer)
        due = trainer.global_step > self.saved_step and trainer.global_step % self.every_n_steps == 0
        if due or late or self._stopped_by:
            self._save_last(trainer)

    def _asked(self, trainer: L.Trainer) -> tuple[bool, int]:
        """Pair of a bool, True if the last write is too long ago, and the received signal or 0; equal on all ranks."""
        late = time.monotonic() - self._saved_at >= 60 * self.every_n_minutes
        asked = torch.tensor([late, self._signals.received])
        if trainer.world_size > 1:
            asked = trainer.strategy.reduce(asked.to(trainer.strategy.root_device), reduce_op="max")
        late, signum = asked.tolist()
        return bool(late), signum

    def _save_last(self, trainer: L.Trainer) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        self.saved_step, self._saved_at = trainer.global_step, time.monotonic()
        self.last_model_path = self._path("last")
        self._save_checkpoint(trainer, self.last_model_path)

    def _path(self, name: str) -> str:
        assert self.dirpath is not None, "setup comes first"
        return str(Path(self.dirpath) / f"{name}{self.FILE_EXTENSION}")


def _finish_writing(trainer: L.Trainer) -> None:
    """Waits for a pending background write and raises its error, if any."""
    trainer.strategy.checkpoint_io.teardown()


def _ends_epoch(trainer: L.Trainer) -> bool:
    progress = trainer.fit_loop.epoch_loop.batch_progress
    return progress.is_last_batch or progress.current.ready >= trainer.num_training_batches


def _validation_follows(trainer: L.Trainer) -> bool:
    fetcher = trainer.fit_loop._data_fetcher
    assert fetcher is not None
    return trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)


def check_layout(checkpoint: dict[str, Any], trainer: L.Trainer) -> None:
    """Checks that a trainer can resume exactly from a checkpoint. In the middle of an epoch, another process layout
    would change the order of summation.

    Raises:
        ValueError: the checkpoint is from the middle of an epoch and its layout differs from the trainer's.
    """
    before, here = checkpoint.get("seqlab", {}).get("layout"), layout(trainer)
    begun = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["ready"] > 0
    if begun and before not in (None, here):
        raise ValueError(
            f"it was written in the middle of an epoch by {before} and can only continue by that, not by {here}; a "
            "checkpoint of an epoch's end continues by any"
        )


class ValidateOnce(Callback):
    """Validates at the end of a fit shorter than its validation interval, which would otherwise have no best."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.val_check_batch is None:  # validation is time-based
            return
        epochs = trainer.check_val_every_n_epoch or 1
        first = trainer.val_check_batch + (epochs - 1) * trainer.num_training_batches
        if (total := num_batches(trainer)) < first:
            trainer.check_val_every_n_epoch = None  # batches are counted over all epochs
            trainer.val_check_batch = total


def num_batches(trainer: L.Trainer) -> float:
    """Number of micro-batches that a whole fit reads on each rank; infinite if no known limit ends it."""
    epoch, accumulated = trainer.num_training_batches, trainer.accumulate_grad_batches
    max_epochs, max_steps = trainer.max_epochs, trainer.max_steps
    by_epochs = math.inf if max_epochs in (None, -1) else max_epochs * epoch
    if max_steps == -1 or getattr(trainer.lightning_module, "tokens_per_step", None) is not None:
        return by_epochs
    if epoch == math.inf:
        return max_steps * accumulated
    # The last step of an epoch may have fewer micro-batches.
    epochs, steps = divmod(max_steps, math.ceil(epoch / accumulated))
    return min(by_epochs, epochs * epoch + steps * accumulated)
