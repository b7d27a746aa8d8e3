"""An exponential moving average of the weights, which validation, the checkpoints and whatever loads them use."""

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
    """Averages the weights over the steps of a fit (Polyak & Juditsky 1992), later ones more: after step n, the
    average moves by 1 - min(decay, (1 + n) / (10 + n)) of its distance to the weights. Validation and checkpoints use
    the average in place of the weights.

    The optimiser keeps the average beside its moments, so that it is spread, stored and restored like these; a
    checkpoint has the weights themselves there.

    Args:
        decay: above 0 and below 1.

    Raises:
        ValueError: it is not; or, from the fit, the weights are in half precision, which is too coarse for it.
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
        if trainer.global_step == self._step:  # within an accumulation
            return
        self._step = trainer.global_step
        decay = min(self.decay, (1 + self._step) / (10 + self._step))
        # An optimiser takes a weight of which it keeps nothing to be new; a scaler may have left its first step out.
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
        """Swaps the weights and their average, unless it is done already."""
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
                module.reshard()  # it may still hold the weights that were here, whole

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
    """Each trained weight with its optimiser state."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                yield weight, optimizer.state[weight]


def _local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()
