"""Checks and output folders for the user's own callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, Checkpoint

FOLDER = "callbacks"


class OwnFolder(Callback):
    """Redirects the user's checkpoint callbacks to the folder `callbacks` of the run, or of `default_root_dir` without
    a run. This keeps their files apart from the checkpoints that a run is loaded and resumed from.

    Args:
        folders: pairs of a callback and its configured folder, relative to `callbacks`; None = `callbacks` itself.
    """

    def __init__(self, folders: list[tuple[Any, str | None]]) -> None:
        self.folders = folders

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit" or not self.folders:
            return
        root: Path | None = getattr(trainer.logger, "artifacts", None)
        base = trainer.strategy.broadcast(str(Path(root or trainer.default_root_dir, FOLDER).resolve()))
        for callback, folder in self.folders:
            callback.dirpath = str(Path(base, folder or ""))


COUNTED = ("epoch", "step")
"""Counters that Lightning's ModelCheckpoint can monitor although nothing logs them."""


def own_folder(callbacks: list[Any], stored: list[dict[str, Any]]) -> OwnFolder:
    """Builds an `OwnFolder` from the callbacks and their stored configs, in the same order."""
    both = zip(callbacks, stored, strict=True)
    return OwnFolder([(one, of.get("init_args", {}).get("dirpath")) for one, of in both if isinstance(one, Checkpoint)])


def logged_names(task: type, callbacks: Iterable[type]) -> list[str]:
    """Names of all metrics that a fit of a task may log, with * for any text. Empty = unknown, because the user's
    classes may log anything."""
    scores: tuple[str, ...] = vars(task).get("score_names", ())
    if not scores or not all(one.__module__.startswith("lightning.") for one in callbacks):
        return []
    return [*(f"val/{name}" for name in scores), "train/loss", "train/grad_norm", "lr-*"]


def check_logged(said: str, metric: str, names: Sequence[str]) -> None:
    """Raises ValueError if a metric matches none of the names; empty names match any metric."""
    if names and not any(fnmatchcase(metric, name) for name in names):
        raise ValueError(f"{said} {metric}, which nothing logs; there are: {', '.join(names)}")


class Monitored(Callback):
    """Stops a fit when a metric that a callback monitors is never logged. A callback that checks only at validation
    would not notice this in a fit without validation.

    Args:
        callbacks: the user's callbacks; only those that are `strict` and whose `monitor` is a metric name are checked.

    Raises:
        ValueError: at once where the logged names are known; else from the fit, after an epoch or the last step.
    """

    def __init__(self, callbacks: list[Any], task: L.LightningModule) -> None:
        named = ((one, getattr(one, "monitor", None)) for one in callbacks if getattr(one, "strict", True))
        self._monitors = [
            (type(one).__name__, monitor)
            for one, monitor in named
            if isinstance(monitor, str) and not (isinstance(one, Checkpoint) and monitor in COUNTED)
        ]
        for name, monitor in self._monitors:
            check_logged(f"{name} monitors", monitor, logged_names(type(task), map(type, callbacks)))
        self._stepped = self._validated = False

    def on_train_batch_end(self, *args: Any) -> None:
        self._stepped = True

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validated = self._stepped

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._validated or not any(trainer.num_val_batches):
            self._check(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check(trainer)

    def _check(self, trainer: L.Trainer) -> None:
        there = trainer.callback_metrics
        for name, monitor in self._monitors if self._stepped and not trainer.fast_dev_run else []:  # type: ignore[attr-defined]
            check_logged(f"{name} monitors", monitor, [*there])
