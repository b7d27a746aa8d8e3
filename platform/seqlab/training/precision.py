"""Refuses a precision that Lightning would quietly replace by another."""

from __future__ import annotations

import lightning as L
from lightning.fabric.connector import _convert_precision_to_unified_args


def check_precision(trainer: L.Trainer, requested: str | int | None) -> None:
    """Checks that the trainer computes in the precision that it was asked for.

    Raises:
        ValueError: it does not; 16-mixed on a CPU is bf16-mixed.
    """
    if requested is not None and _convert_precision_to_unified_args(requested) != trainer.precision:  # type: ignore[arg-type]
        device = type(trainer.accelerator).__name__.removesuffix("Accelerator")
        raise ValueError(
            f"trainer.precision is {requested}, which a {device} does not have; give {trainer.precision} or 32-true"
        )
