"""`python -m scale.ddp_fit FOLDER [STEP [SIGNAL]]`: a fit in two processes, which kill themselves before the step;
with a signal only the first sends it to itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy

from callbacks.tiny_fit import digest, fit_text
from seqlab.batch import TokenBatch


class Windows(Callback):
    """Appends the epoch and the windows of each batch to a file of this rank, and at the end the weights."""

    def __init__(self, folder: Path, kill_before: int | None, signum: int) -> None:
        self.folder, self.kill_before, self.signum = folder, kill_before, signum

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: TokenBatch, batch_idx: int
    ) -> None:
        if trainer.global_step == self.kill_before and (self.signum == signal.SIGKILL or trainer.is_global_zero):
            os.kill(os.getpid(), self.signum)
        self._write(trainer, [trainer.current_epoch, batch.tokens.tolist()])

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, digest(pl_module))

    def _write(self, trainer: L.Trainer, value: Any) -> None:
        with (self.folder / f"rank-{trainer.global_rank}").open("a") as file:
            file.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    folder, kill_before = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    signum = int(sys.argv[3]) if len(sys.argv) > 3 else signal.SIGKILL
    strategy = DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=120))
    fit_text(folder, [Windows(folder, kill_before, signum)], strategy=strategy, devices=2, max_epochs=-1, max_steps=8)
