"""A trainer that stores and says nothing, and what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
from torch.utils.data import DataLoader


def quiet_trainer(folder: Path, **options: Any) -> L.Trainer:
    return L.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        **{"enable_progress_bar": False, **options},
    )


def loader(batches: Any) -> DataLoader[Any]:
    """A loader that yields the batches as they are."""
    return DataLoader(batches, batch_size=None)
