"""torch.compile for a fit."""

from __future__ import annotations

import lightning as L
from lightning.pytorch.callbacks import Callback


class Compile(Callback):
    """Compiles `pl_module.model` in place, so that checkpoints keep their keys and load without this callback.

    A whole LightningModule cannot be compiled: its `self.log` breaks torch.compile (torch 2.12 and 2.13).
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        pl_module.model.compile()  # type: ignore[union-attr]
