"""Small fits that are the same however many processes they have, and what is to be compared of them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.distributed.tensor import DTensor

from scale.kinds import kinds, told
from seqlab.callbacks.exact_resume import ExactResume
from seqlab.callbacks.run_tracker import RunTracker
from seqlab.optim import AdamW
from seqlab.parallel import SpreadStrategy, set_tensor_parallel
from seqlab.tasks.task import of_all_ranks
from trainers import quiet_trainer

KINDS = (
    "language modelling",
    "masked",
    "answering",
    "translation",
    "classification",
    "tagging",
    "images",
    "regression",
    "frames",
)
MAX_TOKENS = 32
"""Of a group of rows: their lengths differ, and the last batch of an epoch has one group."""


class Notes(Callback):
    """The loss of each step, and the rows that this rank was given in the first epoch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rows: list[int] = []

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.losses.append(trainer.callback_metrics["train/loss"].item())
        if trainer.current_epoch == 0 and batch.rows is not None:
            self.rows += [row for row in batch.rows.tolist() if row >= 0]


def fit(
    folder: Path,
    kind: str,
    strategy: str = "auto",
    *,
    batches: int = 1,
    tp: int | None = None,
    made: Any = None,
    options: dict[str, Any] | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Fits a kind of task for two epochs or 12 steps, and scores it.

    Args:
        folder: of its files (`write_files`).
        batches: how many batches of one rank each rank reads at once: of one process, as many as it stands for.
        made: data and what makes its task, in the place of the kind's own.
        options: of the task.
        flags: of the trainer.

    Returns:
        "losses" of the steps and "weights" by name; "scores"; "rows" that each rank read in the first epoch;
        "num_tokens"; "norm", the last gradient's, where it is clipped.
    """
    L.seed_everything(0, verbose=False)
    data, make = made or kinds(folder)[kind]
    data.batch_size *= batches
    if hasattr(data, "max_tokens"):
        data.max_tokens = min(data.max_tokens, MAX_TOKENS)
    # Where a gradient is 0 but for rounding, Adam's division by its size would make a step of it.
    task = make(
        **told(data), **{"warmup_steps": 2, "lr": 1e-2, "optimizer": partial(AdamW, eps=1e-3), **(options or {})}
    )
    notes, tracker = Notes(), RunTracker()
    limits: dict[str, Any] = {"max_epochs": 2, "max_steps": 12, "limit_val_batches": 0, "limit_test_batches": 2}
    callbacks = [notes, tracker, ExactResume(0)]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    ranked: dict[str, Any] = {"strategy": strategy, "devices": ranks, "use_distributed_sampler": False}
    trainer = quiet_trainer(folder, **{**limits, **ranked, "callbacks": callbacks, **flags})
    set_tensor_parallel(trainer, tp)
    trainer.fit(task, data)
    norm = trainer.callback_metrics.get("train/grad_norm")
    (scores,) = trainer.test(task, data, verbose=False)
    weights = trainer.strategy.lightning_module_state_dict()
    return {
        "losses": of_all_ranks(notes.losses),
        "weights": {name: _whole(weight).flatten().tolist() for name, weight in weights.items()},
        "scores": scores,
        "rows": of_all_ranks(notes.rows),
        "num_tokens": tracker.speed.metrics()["num_tokens"],
        "norm": None if norm is None else norm.item(),
        "spread": isinstance(trainer.strategy, SpreadStrategy),
    }


def _whole(weight: Tensor) -> Tensor:
    return weight.full_tensor() if isinstance(weight, DTensor) else weight
