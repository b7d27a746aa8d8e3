"""Report of `torch.compile` times."""

from __future__ import annotations

import sys
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback


class CompileTime(Callback):
    """Prints the compilation time on stderr whenever a new batch shape or kind triggers compilation."""

    def __init__(self) -> None:
        self._began, self._seconds, self._said = 0.0, 0.0, 0.0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(self._start)
        callback_handler.register_end_callback(self._end)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        from torch._dynamo.callback import callback_handler

        if self._start in callback_handler.start_callbacks:  # not after `torch.compiler.reset()`
            callback_handler.remove_start_callback(self._start)
            callback_handler.remove_end_callback(self._end)

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        self._say(trainer, f"step {trainer.global_step}")

    def on_validation_end(self, trainer: L.Trainer, *args: Any) -> None:
        self._say(trainer, "a validation")

    def _start(self, *args: Any) -> None:
        self._began = time.monotonic()

    def _end(self, *args: Any) -> None:
        self._seconds += time.monotonic() - self._began

    def _say(self, trainer: L.Trainer, where: str) -> None:
        if self._seconds > self._said and trainer.is_global_zero:
            print(f"compiled for {where}: {self._seconds - self._said:.1f} s", file=sys.stderr)
        self._said = self._seconds
