"""Skipping of steps with gradient spikes."""

from __future__ import annotations

import math
import statistics
import sys
from collections import deque
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from seqlab.callbacks.run_tracker import DivergedError
from seqlab.parallel.gradients import norm_of

WINDOW, LEAST = 100, 10
"""Maximum and minimum number of steps over which the median is taken."""


class SkipSpikes(Callback):
    """Skips an optimiser step whose gradient norm is not finite or exceeds a multiple of the recent median.
    Weights and moments are not changed, but the learning rate schedule advances. `train/skipped_steps` counts the
    skipped steps. The decision depends only on the gradient norms, which are stored in checkpoints.

    Args:
        times: multiple of the median norm above which a step is skipped; above 1.

    Raises:
        ValueError: `times` is not above 1.
        DivergedError: from the fit, after `WINDOW` skipped steps in a row.
    """

    def __init__(self, times: float) -> None:
        if not times > 1:
            raise ValueError(f"skip_spikes must be above 1, got {times}")
        self.times = times
        self._norms: deque[float] = deque(maxlen=WINDOW)
        self._skipped = self._in_a_row = 0

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        norm = norm_of(pl_module.parameters()).item()
        usual = statistics.median(self._norms) if len(self._norms) >= LEAST else math.inf
        if math.isfinite(norm):
            self._norms.append(norm)  # spikes included, so that the median adapts when all norms have grown
        if norm <= self.times * usual and math.isfinite(norm):
            self._in_a_row = 0
        else:
            optimizer.zero_grad()
            self._skipped, self._in_a_row = self._skipped + 1, self._in_a_row + 1
            if trainer.is_global_zero:
                what = f"the gradient norm is {norm:.3g}, usually {usual:.3g}"
                print(f"step {trainer.global_step + 1} is skipped: {what}", file=sys.stderr)
        if self._in_a_row >= WINDOW:
            raise DivergedError(f"{WINDOW} consecutive steps were skipped, up to step {trainer.global_step + 1}")
        pl_module.log("train/skipped_steps", float(self._skipped))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Steps that are not finite are skipped here, so `RunTracker`, which runs later, must not end the fit.
        if isinstance(outputs, dict) and isinstance(outputs.get("loss"), torch.Tensor):
            outputs["loss"] = outputs["loss"].nan_to_num(0.0, 0.0, 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {"norms": list(self._norms), "skipped": self._skipped, "in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._norms.extend(state_dict["norms"])
        self._skipped, self._in_a_row = state_dict["skipped"], state_dict["in_a_row"]
