"""Lightning's finders of the learning rate and the batch size. Each searches before the fit, with a separate trainer,
and the fit uses the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import BatchSizeFinder, Callback, LearningRateFinder

FINDERS = (LearningRateFinder, BatchSizeFinder)
QUIETLY: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "val_check_interval": None,
    "check_val_every_n_epoch": 1 << 30,
}
"""Trainer options for a search, which stores and validates nothing."""


def search(
    finders: list[Any],
    trainer: Callable[[Callback], L.Trainer],
    task: L.LightningModule,
    data: L.LightningDataModule,
    config: dict[str, Any],
    stored: dict[str, Any] | None,
) -> Iterator[str]:
    """Runs each finder, and sets the value found on the task or the data module and in the resolved config. The weights
    are not changed. Yields one message per value found.

    Args:
        trainer: returns a trainer with the given finder as its callback.
        stored: config of the run being continued, from which the values are taken; None = a new run.

    Raises:
        ValueError: there are several processes, or the class does not have the option to be found.
    """
    for finder in finders:
        name = type(finder).__name__
        looks_for_lr = isinstance(finder, LearningRateFinder)
        part, owner = ("model", task) if looks_for_lr else ("data", data)
        attribute = (finder._attr_name or "lr") if looks_for_lr else finder._batch_arg_name
        options = config[part].get("init_args", {})
        if attribute not in options:
            raise ValueError(f"{name} searches for {attribute}, which is not an option of {type(owner).__name__}")
        if stored is None:
            one = trainer(finder)
            if one.world_size > 1:
                raise ValueError(f"{name} needs one process; find {attribute} with --trainer.devices 1, then give it")
            finder._early_exit = True
            one.fit(task, datamodule=data)
        else:
            setattr(owner, attribute, stored[part]["init_args"][attribute])
        options[attribute] = found = getattr(owner, attribute)
        yield f"{name}: {attribute} {found:.4g}"
