"""Check that all ranks of a fit start from the same checkpoint."""

from __future__ import annotations

import lightning as L
from lightning.pytorch.callbacks import Callback


class ResumeConsistency(Callback):
    """Compares the checkpoints that the ranks continue from, before anything is written to the run.

    Args:
        checkpoint: checkpoint of this rank; None = a new fit.

    Raises:
        ValueError: from the fit, on all ranks, if a rank's checkpoint differs from rank 0's.
    """

    def __init__(self, checkpoint: str | None) -> None:
        self.checkpoint = checkpoint

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if trainer.world_size == 1:
            return
        first = trainer.strategy.broadcast(self.checkpoint)
        if not trainer.strategy.reduce_boolean_decision(first == self.checkpoint):
            raise ValueError(
                f"rank 0 continues from {first or 'no checkpoint'} and rank {trainer.global_rank} from "
                f"{self.checkpoint or 'none'}; all ranks must see one working folder and one tracking store"
            )
