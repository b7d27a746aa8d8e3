"""Exponential moving average of the weights, used by validation and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

AVERAGE = "average"


class AveragedWeights(Callback):
    """Keeps an exponential moving average of the weights during a fit (Polyak & Juditsky 1992). After step n the
    average moves towards the weights by 1 - min(decay, (1 + n) / (10 + n)) of their distance. Validation and
    checkpoints use the average instead of the weights.

    The average is part of the optimiser state, so it is sharded, stored and restored like the moments. In a checkpoint
    the raw weights take its place there.

    Args:
        decay: largest decay of the average, above 0 and below 1.

    Raises:
        ValueError: decay is out of range; or, from the fit, the weights are in half precision, which is too coarse.
    """

    def __init__(self, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"--ema must be above 0 and below 1, got {decay:g}")
        self.decay = decay
        self._step = 0
        self._in_use = False

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if any(weight.dtype in (torch.float16, torch.bfloat16) for weight in pl_module.parameters()):
            raise ValueError(
                f"--ema averages weights in float32 or float64, and trainer.precision {trainer.precision} has them in "
                "half precision; give bf16-mixed, 16-mixed or 32-true"
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._step = trainer.global_step
        self._use_average(trainer, False)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._step:  # inside gradient accumulation
            return
        self._step = trainer.global_step
        decay = min(self.decay, (1 + self._step) / (10 + self._step))
        # An optimiser treats a weight with empty state as new, and a gradient scaler may have skipped its first step.
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        for weight, kept in _trained(trainer):
            if AVERAGE in kept:
                kept[AVERAGE].lerp_(weight, 1 - decay)
            elif kept or (weight.grad is not None and not scaled):
                kept[AVERAGE] = weight.detach().clone()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._use_average(trainer, True)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._use_average(trainer, False)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._use_average(trainer, True)

    @torch.no_grad()
    def _use_average(self, trainer: L.Trainer, use: bool) -> None:
        """Swaps the weights and their average unless they are already swapped."""
        if trainer.state.fn != "fit" or use == self._in_use:
            return
        self._in_use = use
        for weight, kept in _trained(trainer):
            if AVERAGE in kept:
                here, there = _local(weight), _local(kept[AVERAGE])
                held = here.clone()
                here.copy_(there)
                there.copy_(held)
        for module in trainer.lightning_module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # drop gathered copies of the previous weights

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._in_use:
            return
        names: dict[nn.Parameter, list[str]] = {}
        for name, weight in pl_module.named_parameters(remove_duplicate=False):
            names.setdefault(weight, []).append(name)
        for optimizer, stored in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            stored["state"] = dict(stored["state"])
            for number, kept in stored["state"].items():
                if AVERAGE in kept:
                    checkpoint["state_dict"] |= dict.fromkeys(names[weights[number]], kept[AVERAGE])
                    stored["state"][number] = kept | {AVERAGE: weights[number].detach()}

    def state_dict(self) -> dict[str, Any]:
        return {"decay": self.decay}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._in_use = True


def _trained(trainer: L.Trainer) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    """Yields each trained weight with its optimiser state."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                yield weight, optimizer.state[weight]


def _local(tensor: Tensor) -> Tensor:
    """Local shard of a tensor on this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
