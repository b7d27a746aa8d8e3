"""Record of a fit in its run, in addition to the task's own metrics."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from seqlab.budgets import training_flops
from seqlab.budgets.devices import peak_of
from seqlab.callbacks.crash_report import spoken
from seqlab.callbacks.speed import Speed
from seqlab.callbacks.stopping import StoppedError
from seqlab.nn.mixture_of_experts import num_active_params
from seqlab.parallel import data_parallel
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.params import block_tags, config_hash, flatten, to_yaml
from seqlab.tracking.provenance import package_versions, provenance
from seqlab.tracking.system import SystemMetrics, peak_memory_mb
from seqlab.tracking.writes import FAILURE_TAG, SCORED_TAG


class DivergedError(ValueError):
    """The training loss is not finite, or too many steps in a row were skipped."""


class RunTracker(Callback):
    """Stores provenance, training speed and outcome of a fit in the run of a `RunLogger`.

    docs/tracking.md lists the stored items. Other loggers receive the configuration and the same metrics. Without a
    `RunLogger` this callback only checks the loss.

    Args:
        config: resolved configuration, nested, of plain values.
        speed: speed meter to update; None = a new one.
        tags: additional tags of the run.

    Raises:
        DivergedError: from the fit, when the training loss becomes NaN or infinite.
    """

    def __init__(
        self, config: dict[str, Any] | None = None, speed: Speed | None = None, tags: dict[str, str] | None = None
    ) -> None:
        self.config = config or {}
        self._hash = config_hash(self.config)  # hashed before finders write their results into the config
        self.speed = speed or Speed()
        self._tags = tags or {}
        self._started_at = time.monotonic()
        self._sizes: dict[str, float] = {}
        self._lr = 0.0
        self._loss_sum = torch.zeros(())
        self._checked_step = 0
        self._system: SystemMetrics | None = None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._started_at = time.monotonic()
        self._system = None
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        self._sizes = _sizes(pl_module, datamodule)  # before the model is distributed over processes
        self.speed.peak = _peak(trainer, self._sizes)
        logger = _run_logger(trainer)
        if stage == "fit" and logger is not None and not logger.continued:
            self._describe(trainer, pl_module, logger)
        for other in _loggers_beside(trainer) if stage == "fit" and self.config else []:
            other.log_hyperparams(self.config)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._checked_step = trainer.global_step
        self._loss_sum = torch.zeros((), device=pl_module.device)
        if (logger := _run_logger(trainer)) and logger.continued:  # its checkpoint has been restored
            self._describe(trainer, pl_module, logger)

    def _describe(self, trainer: L.Trainer, pl_module: L.LightningModule, logger: RunLogger) -> None:
        if self.config:
            logger.log_text(to_yaml(self.config), "config.yaml")
            logger.log_hyperparams(self.config)
            logger.log_tags({"config_hash": self._hash, **block_tags(flatten(self.config))})
        logger.log_text("".join(f"{k}=={v}\n" for k, v in package_versions().items()), "packages.txt")
        logger.log_tags(provenance() | self._tags | {SCORED_TAG: scored_as(type(pl_module))})
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if getattr(datamodule, "tokenizer", None) is not None:
            logger.log_text(json.dumps(datamodule.tokenizer.to_dict()) + "\n", "tokenizer.json")
        if hasattr(datamodule, "describe"):
            logger.log_dataset(datamodule.describe())
        logger.log_metrics(self._sizes | {"num_devices": float(trainer.world_size)}, step=0)
        logger.flush()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.optimizers:
            self._lr = float(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        tokens = getattr(pl_module, "num_tokens", None)
        if tokens is None:  # not a `Task`: assumes the same number on every rank
            tokens = getattr(batch, "num_tokens", torch.zeros(())) * data_parallel(trainer).size
        self.speed.count(tokens)
        if isinstance(outputs, dict) and isinstance(outputs.get("loss"), Tensor):
            self._loss_sum += outputs["loss"].detach()
        step = trainer.global_step
        if self._system is None and step != self._checked_step and (logger := _run_logger(trainer)):
            self.speed.pause()
            logger.begin()
            self._system = SystemMetrics()
            self.speed.resume()
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # 0 = none
        due = every > 0 and step != self._checked_step and step % every == 0
        # Reading a number synchronises with the GPU, and ranks must stop together. There, check only when logging.
        if due or (self._loss_sum.device.type == "cpu" and trainer.world_size == 1):
            self._check_loss(trainer)
        if due:
            self._checked_step = step
            self._log(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.speed.pause()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.speed.resume()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Flushes the logged points first: a fit resumed from this checkpoint will not log these steps again."""
        if logger := _run_logger(trainer):
            logger.flush()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check_loss(trainer)
        self._log(trainer, pl_module)
        if logger := _run_logger(trainer):
            wall_seconds = time.monotonic() - self._started_at
            logger.log_metrics({"perf/wall_seconds": wall_seconds}, step=_logged_step(trainer))

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if logger := _run_logger(trainer):
            killed = isinstance(exception, KeyboardInterrupt | SIGTERMException | StoppedError)
            logger.status = "KILLED" if killed else "FAILED"
            reason = f"{type(exception).__name__}: {exception}" if str(exception) else type(exception).__name__
            logger.log_tags({FAILURE_TAG: spoken() or reason})

    def state_dict(self) -> dict[str, Any]:
        return self.speed.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.speed.load_state_dict(state_dict)

    def _check_loss(self, trainer: L.Trainer) -> None:
        loss = self._loss_sum.item()
        self._loss_sum.zero_()
        finite = math.isfinite(loss)
        if trainer.strategy.reduce_boolean_decision(not finite, all=False):
            shown = "not finite on another rank" if finite else loss
            raise DivergedError(
                f"the training loss is {shown} at step {trainer.global_step} (epoch {trainer.current_epoch}): the "
                "fit has diverged; a lower learning rate, a longer warm-up or gradient clipping may help"
            )

    def _log(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        metrics = self.speed.metrics()
        if logger := _run_logger(trainer):
            metrics |= {"lr": self._lr, "perf/peak_memory_mb": peak_memory_mb(pl_module.device)}
            if self._system is not None:
                metrics |= self._system.sample()
            for one in (logger, *_loggers_beside(trainer)):
                one.log_metrics(metrics, step=_logged_step(trainer))


def scored_as(task: type) -> str:
    """Name of the class that defines a task's scores and their inputs; overriding only the loss does not change it."""
    own = task.__mro__[: task.__mro__.index(L.LightningModule)]
    scores = ("scores", "evaluate", "log_scores", "validation_step")
    return next((of.__name__ for of in own if any(name in vars(of) for name in scores)), task.__name__)


def _run_logger(trainer: L.Trainer) -> RunLogger | None:
    if not trainer.is_global_zero:
        return None
    return next((logger for logger in trainer.loggers if isinstance(logger, RunLogger)), None)


def _loggers_beside(trainer: L.Trainer) -> list[Logger]:
    """The user's other loggers; empty except on rank 0."""
    return [one for one in trainer.loggers if trainer.is_global_zero and not isinstance(one, RunLogger)]


def _logged_step(trainer: L.Trainer) -> int:
    """Step at which Lightning logs a batch's metrics, counted from 0."""
    return max(trainer.global_step - 1, 0)


def _sizes(pl_module: L.LightningModule, datamodule: Any) -> dict[str, float]:
    sizes = {"num_params": float(sum(parameter.numel() for parameter in pl_module.parameters()))}
    if (active := num_active_params(pl_module)) != sizes["num_params"]:
        sizes["num_active_params"] = float(active)
    model, seq_len = getattr(pl_module, "model", None), getattr(datamodule, "seq_len", None)
    if model is None or seq_len is None:
        return sizes
    if (state_size := getattr(model, "state_size", None)) is not None:
        sizes["state_size"] = float(state_size(seq_len))
    with suppress(ValueError):  # unknown
        sizes["num_flops"] = training_flops(model, seq_len)
    return sizes


def _peak(trainer: L.Trainer, sizes: dict[str, float]) -> float | None:
    """Tokens per second at the devices' peak FLOP/s; None if the peak or the model's FLOPs are unknown."""
    device = trainer.strategy.root_device
    if device.type != "cuda" or "num_flops" not in sizes:
        return None
    peak = peak_of(torch.cuda.get_device_name(device), str(trainer.precision))
    return None if peak is None else peak * trainer.world_size / sizes["num_flops"]
