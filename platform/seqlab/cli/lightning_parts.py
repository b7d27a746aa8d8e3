"""Lightning components chosen by a config: callbacks, loggers, profilers, strategies and plugins."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import lightning as L
from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelPruning, ProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins import LayerSync, Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy
from torch import nn

from seqlab.callbacks.finders import FINDERS

PARTS = (Callback, Logger, Profiler, Strategy, Accelerator, Precision, CheckpointIO, ClusterEnvironment, LayerSync)
MODELS_AND_DATA = (L.LightningModule, L.LightningDataModule, nn.Module)


def part_that_raised(error: BaseException) -> str | None:
    """Class name of the Lightning component that raised an error. None if a model, the data or this package raised it,
    or if it is unknown."""
    for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
        module, one = frame.f_globals.get("__name__", ""), frame.f_locals.get("self")
        if module.startswith("lightning.") and isinstance(one, PARTS):
            return type(one).__name__
        if not module.startswith(("lightning.", "torch.")) and isinstance(one, PARTS + MODELS_AND_DATA):
            return None
    return None


def said_by_part(error: Exception) -> str | None:
    """Message for an error raised by a Lightning component; None if another part raised it."""
    if (part := part_that_raised(error)) is None:
        return None
    text = " ".join(str(error).split()) or "it is only a base class, or lacks what it needs"
    kind = "" if isinstance(error, ValueError | ImportError) else f"{type(error).__name__}: "
    return f"{part}: {kind}{text}"


def kept(callbacks: list[Any], *, fits: bool, bar: bool) -> list[Any]:
    """The user's callbacks for the trainer, without finders, which run before the fit, without progress bars if `bar`
    is False, and without checkpoint callbacks if `fits` is False."""
    left_out = (*FINDERS, *(() if bar else (ProgressBar,)), *(() if fits else (Checkpoint,)))
    return [one for one in callbacks if not isinstance(one, left_out)]


def check_restores(callbacks: Iterable[Any]) -> None:
    """Checks that each of Lightning's callbacks can restore its own state, and that no callback stores weights in
    checkpoints under other names than the model's.

    Raises:
        ValueError: a callback cannot, such as SpikeDetection in Lightning 2.6, or ModelPruning is not permanent.
    """
    for one in callbacks:
        if isinstance(one, ModelPruning) and not one._make_pruning_permanent:
            raise ValueError(
                "trainer.callbacks: ModelPruning with make_pruning_permanent false replaces each weight by a mask and "
                "a weight, so the run could not be loaded again; leave it true"
            )
        if type(one).__module__.startswith("lightning."):
            try:
                deepcopy(one).load_state_dict(deepcopy(one.state_dict()))
            except Exception as error:
                name, why = type(one).__name__, f"{type(error).__name__}: {error}"
                raise ValueError(
                    f"trainer.callbacks: {name} cannot be restored from a checkpoint ({why}), so the run could "
                    "not be loaded again"
                ) from error
