"""Base class of probes that inspect a model in each validation without affecting the fit."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from seqlab.parallel import SpreadStrategy


class Probe(Callback):
    """Logs values that a subclass computes on the first rows of the first batch of each validation: in eval mode, in
    the weights' precision, uncompiled. With one model replica per process, logs the values of the first process.

    Args:
        rows: number of rows of the batch, at least 1.

    Raises:
        ValueError: rows is below 1; in the fit, the model has nothing to probe or is distributed over processes.
    """

    def __init__(self, rows: int = 32) -> None:
        if rows < 1:
            raise ValueError(f"rows of {type(self).__name__} must be at least 1, got {rows}")
        self.rows = rows

    @abstractmethod
    def check(self, model: nn.Module) -> None:
        """Raises ValueError if the model has nothing to probe."""

    @abstractmethod
    def find(self, model: nn.Module, batch: Any) -> dict[str, float]:
        """Values to log, by name."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if isinstance(trainer.strategy, SpreadStrategy):
            raise ValueError(
                f"{type(self).__name__} needs the whole model in one process, but --trainer.strategy "
                f"{trainer.strategy.word} shards it; omit one of the two"
            )
        self.check(pl_module.model)  # type: ignore[arg-type]

    def on_validation_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if batch_idx > 0 or dataloader_idx > 0:
            return
        model: Any = pl_module.model
        devices = [pl_module.device] if pl_module.device.type == "cuda" else []
        # Gradients need tensors created outside inference mode, so the rows are copied.
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.random.fork_rng(devices),
            torch.compiler.set_stance("force_eager"),
        ):
            rows = {name: of[: self.rows].clone() for name, of in batch._asdict().items() if isinstance(of, Tensor)}
            found = self.find(model, batch._replace(**rows))
        for name, value in found.items():
            pl_module.log(name, value, batch_size=1)
