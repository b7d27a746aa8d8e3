"""Progress of a fit: bars on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column

from seqlab.callbacks.speed import Speed
from seqlab.tasks.task import Task


class FitProgress(ProgressBar):
    """Shows the progress of a fit, validation, test or prediction on stderr.

    A fit is counted in optimiser steps over all epochs. It shows the training loss, the metrics logged with
    `prog_bar=True`, the throughput in tokens per second over all ranks, and the remaining time including validations.
    The loss is read only when it is shown, a few times a second, because reading it synchronises with the GPU.

    Args:
        speed: speed meter of the fit, updated by its `RunTracker`.
    """

    def __init__(self, speed: Speed) -> None:
        super().__init__()
        self._enabled = True
        self._display: Lines | None = None
        self._speed = speed
        self._start, self._first_step = (0.0, 0), 0

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        print(*args, **{"file": sys.stderr, **kwargs})

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._display = display() if self._enabled else None
        if isinstance(pl_module, Task):
            pl_module.loss_in_bar = False  # read below, when it is shown

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start, self._first_step = (time.monotonic(), trainer.global_step), trainer.global_step

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step <= self._first_step + 1:  # excludes one-time costs, such as opening the run
            self._start = time.monotonic(), trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._display is not None and self._display.due():
            self._show_fit(trainer, self._display)

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int, *args: Any
    ) -> None:
        if not trainer.sanity_checking:
            self._show_evaluation("validate", batch_idx, trainer.num_val_batches)

    def on_test_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int, *args: Any
    ) -> None:
        self._show_evaluation("test", batch_idx, trainer.num_test_batches)

    def on_predict_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int, *args: Any
    ) -> None:
        self._show_evaluation("predict", batch_idx, trainer.num_predict_batches)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn != "fit":
            self._close()
        elif self._display is not None:
            self._display.finish("validate")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._display is not None:
            self._show_fit(trainer, self._display)
        self._close()

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._close()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._display is not None:
            self._display.close()
            self._display = None

    def _show_fit(self, trainer: L.Trainer, display: Lines) -> None:
        step, total = trainer.global_step, trainer.estimated_stepping_batches
        loss = {name: value for name, value in trainer.callback_metrics.items() if name == "train/loss"}
        shown = loss | trainer.progress_bar_metrics
        news = [f"{name.removeprefix('train/')} {float(value):.4g}" for name, value in shown.items()]
        if rate := self._speed.rate:
            news.append(f"{_short(rate)} tokens/s")
        started_at, first_step = self._start
        if first_step < step < total < float("inf"):
            seconds = (time.monotonic() - started_at) / (step - first_step) * (total - step)
            news.append(f"{_clock(seconds)} left")
        display.show("fit", step, total, " · ".join(news))

    def _show_evaluation(self, name: str, batch_idx: int, num_batches: float | list[int | float]) -> None:
        if self._display is not None and self._display.due():
            total = sum(num_batches) if isinstance(num_batches, list) else num_batches
            self._display.show(name, batch_idx + 1, total, "")


def _short(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


class Lines:
    """Progress of named counters, printed occasionally as plain lines without control characters.

    Attributes:
        seconds: minimum time between two updates, in seconds.
    """

    seconds = 20.0

    def __init__(self) -> None:
        self._shown_at = time.monotonic()

    def due(self) -> bool:
        """True if an update is due; the caller must then show one."""
        if time.monotonic() - self._shown_at < self.seconds:
            return False
        self._shown_at = time.monotonic()
        return True

    def show(self, name: str, done: int, total: float, text: str) -> None:
        """Shows `done` of `total`, which may be infinite, with a text."""
        count = f"{done}" if total == float("inf") else f"{done}/{total:.0f}"
        print(" · ".join(filter(None, (f"{name} {count}", text))), file=sys.stderr, flush=True)

    def finish(self, name: str) -> None:
        """Ends one counter."""

    def close(self) -> None:
        """Ends all counters."""


class Bars(Lines):
    """One bar per counter, redrawn in place."""

    seconds = 0.25

    def __init__(self) -> None:
        super().__init__()
        # Redrawn by the caller, because a refresh thread would slow the fit more. stdout is not redirected, or results
        # would end up on stderr.
        self._progress = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            redirect_stdout=False,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def show(self, name: str, done: int, total: float, text: str) -> None:
        if name in self._tasks:
            self._progress.update(self._tasks[name], completed=done, text=text)
            self._progress.refresh()
        else:
            self._progress.start()
            limit = None if total == float("inf") else total
            self._tasks[name] = self._progress.add_task(name, completed=done, total=limit, text=text)

    def finish(self, name: str) -> None:
        if name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))
            self._progress.refresh()

    def close(self) -> None:
        self._progress.stop()


def display() -> Lines:
    return Bars() if sys.stderr.isatty() else Lines()
