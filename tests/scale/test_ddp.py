"""Two processes: each window once, the same weights, and exact resume."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import lightning as L
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback

from callbacks.tiny_fit import digest, fit_text, text_data
from scale.forked import forked
from seqlab.batch import TokenBatch
from seqlab.callbacks.stopping import StoppedError, exit_code


class Windows(Callback):
    """Appends the epoch and the windows of each batch to a file of this rank, and at the end the weights. Sends signals
    before a step: to both ranks SIGKILL, another to the first alone."""

    def __init__(self, folder: Path, step: int, signum: int) -> None:
        self.folder, self.step, self.signum = folder, step, signum

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: TokenBatch, batch_idx: int) -> None:
        if trainer.global_step == self.step and (self.signum == signal.SIGKILL or trainer.is_global_zero):
            os.kill(os.getpid(), self.signum)
        self._write(trainer, [trainer.current_epoch, batch.tokens.tolist()])

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, digest(pl_module))

    def _write(self, trainer: L.Trainer, value: Any) -> None:
        with (self.folder / f"rank-{trainer.global_rank}").open("a") as file:
            file.write(json.dumps(value) + "\n")


def fit_two(folder: Path, step: int = -1, signum: int = signal.SIGKILL) -> list[int]:
    """The exit codes of two ranks; 0 of one that stops as it should."""

    def fit_rank() -> None:
        try:
            fit_text(folder, [Windows(folder, step, signum)], strategy="ddp", devices=2, max_epochs=-1, max_steps=8)
        except StoppedError as stopped:
            assert exit_code(stopped) == (0 if dist.get_rank() else 128 + signum)

    return forked(2, fit_rank)


def notes(folder: Path, rank: int) -> list[Any]:
    return [json.loads(line) for line in (folder / f"rank-{rank}").read_text().splitlines()]


def test_two_processes(tmp_path: Path) -> None:
    whole, killed, stopped = (tmp_path / name for name in ("whole", "killed", "stopped"))
    assert fit_two(whole) == [0, 0]
    (*batches, weights), (*other_batches, other_weights) = (notes(whole, rank) for rank in (0, 1))
    assert weights == other_weights
    first_epoch = [window for epoch, windows in batches + other_batches if epoch == 0 for window in windows]
    data = text_data(tmp_path)
    data.setup("fit")
    windows = [window for batch in data.train_dataloader() for window in batch.tokens.tolist()]
    assert Counter(map(tuple, first_epoch)) == Counter(map(tuple, windows))

    assert -signal.SIGKILL in fit_two(killed, 7)
    assert fit_two(stopped, 3, signal.SIGTERM) == [0, 0]
    assert len(notes(stopped, 0)) == len(notes(stopped, 1)) < 8, "they stop at one step"
    for folder in (killed, stopped):
        assert fit_two(folder) == [0, 0]
        assert notes(folder, 0)[-1] == notes(folder, 1)[-1] == weights
