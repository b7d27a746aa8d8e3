"""One-sentence refusal of a checkpoint that does not belong to this fit, wherever restoring it fails."""

from __future__ import annotations

import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor

MOST_SAID = 500
RESTORING = ("restore", "_restore", "resume")
MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")
"""Optimiser state entries of torch.optim with the shape of their weight."""


@contextmanager
def saying_what_is_wrong(checkpoint: str | None, *, anywhere: bool = False) -> Iterator[None]:
    """Converts an error in restoring a checkpoint (or any error, with `anywhere`) into a ValueError that names it."""
    try:
        yield
    except Exception as error:
        if checkpoint is None or not (anywhere or _is_restoring(error)):
            raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        text = textwrap.shorten(kind + str(error), MOST_SAID, placeholder=" ...")
        raise ValueError(f"checkpoint {checkpoint} does not belong to this fit: {text}") from error


def _is_restoring(error: BaseException) -> bool:
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(
        code.co_filename.endswith("checkpoint_connector.py") and code.co_name.startswith(RESTORING) for code in frames
    )


class RestoredState(Callback):
    """Validates state that Lightning restores unchecked: loop counters, the numbers of optimisers and schedulers, and
    the shapes of optimiser states. It must be the first callback of a fit.

    Raises:
        ValueError: the checkpoint does not match the fit; the message says where.
    """

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            _check_layout(trainer.fit_loop.state_dict(), checkpoint["loops"]["fit_loop"], "loops.fit_loop")
            self._stored = {name: len(checkpoint[name]) for name in ("optimizer_states", "lr_schedulers")}

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Counts here, because StochasticWeightAveraging removes the schedule afterwards when it resumes."""
        ours = {"optimizer_states": len(trainer.optimizers), "lr_schedulers": len(trainer.lr_scheduler_configs)}
        for name, count in self._stored.items():
            if count != ours[name]:
                raise ValueError(f"the checkpoint has {count} {name}, but this fit has {ours[name]}")

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for optimizer in trainer.optimizers:
            for weight, kept in optimizer.state.items():
                for name in MOMENTS:
                    if name in kept and (not isinstance(kept[name], Tensor) or kept[name].shape != weight.shape):
                        raise ValueError(
                            f"the checkpoint's {name} of a weight of shape {tuple(weight.shape)} is not of that shape"
                        )


def _check_layout(ours: Any, theirs: Any, key: str) -> None:
    """Raises ValueError if a number, or a group of numbers, is missing or has another type."""
    if type(ours) in (bool, int, dict) and type(theirs) is not type(ours):
        raise ValueError(f"its {key} is {str(theirs)[:60]!r}, not of type {type(ours).__name__}")
    if isinstance(ours, dict):
        for name, value in ours.items():
            _check_layout(value, theirs.get(name), f"{key}.{name}")
