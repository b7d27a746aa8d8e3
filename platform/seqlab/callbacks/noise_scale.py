"""Gradient noise scale: the batch size in tokens beyond which larger steps bring little improvement."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch.optim import Optimizer

from seqlab.callbacks.tokens_per_step import TokensPerStep
from seqlab.parallel.gradients import norm_of

DECAY = 0.99
"""Decay of the moving averages of noise and signal, whose quotient is logged."""


class GradientNoiseScale(Callback):
    """Logs `train/noise_scale`, in tokens: the trace of the gradient covariance divided by the squared gradient norm.
    It is estimated from the gradient norms of a step's first micro-batch and of the whole step (McCandlish et al.
    2018, "An Empirical Model of Large-Batch Training", appendix A.1).

    Raises:
        ValueError: from the fit, if a step has one micro-batch, runs in several processes, or uses `TokensPerStep`.
    """

    def __init__(self) -> None:
        self._noise = self._signal = 0.0
        self._small = self._first = self._tokens = 0.0
        self._micro_batches = 0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        by_tokens = any(isinstance(callback, TokensPerStep) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        if trainer.accumulate_grad_batches < 2 or trainer.world_size > 1 or by_tokens:
            raise ValueError(
                "--noise_scale compares a step's first micro-batch with all of them, in one process; give "
                "--trainer.accumulate_grad_batches of at least 2, and no --tokens_per_step"
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._tokens, self._micro_batches = 0.0, 0

    def on_after_backward(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        num_tokens = float(pl_module.num_tokens)  # type: ignore[arg-type]
        if self._micro_batches == 0:
            scaler: Any = getattr(trainer.precision_plugin, "scaler", None)
            scale = 1.0 if scaler is None else scaler.get_scale()
            self._small = norm_of(pl_module.parameters()).item() * trainer.accumulate_grad_batches / scale
            self._first = num_tokens
        self._tokens += num_tokens
        self._micro_batches += 1

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        # The last step of an epoch may have fewer micro-batches, but its loss is divided by the same number.
        large = norm_of(pl_module.parameters()).item() * trainer.accumulate_grad_batches / self._micro_batches
        few, many, small = self._first, self._tokens, self._small
        self._tokens, self._micro_batches = 0.0, 0
        if many > few and torch.isfinite(torch.tensor([small, large])).all():
            signal = (many * large**2 - few * small**2) / (many - few)
            noise = (small**2 - large**2) / (1 / few - 1 / many)
            self._signal = DECAY * self._signal + (1 - DECAY) * signal
            self._noise = DECAY * self._noise + (1 - DECAY) * noise
        if self._signal > 0:
            pl_module.log("train/noise_scale", self._noise / self._signal)

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self._noise, "signal": self._signal}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._noise, self._signal = state_dict["noise"], state_dict["signal"]
