"""Fits that go on from a checkpoint: of another layout at an epoch's end, of the same one anywhere."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from callbacks.tiny_fit import tiny_trainer
from scale.fits import Notes, whole_weight
from scale.kinds import kinds, told
from seqlab.callbacks.averaged_weights import AveragedWeights
from seqlab.checkpoint_io import read_checkpoint
from seqlab.optim import AdamW, Constant
from seqlab.parallel import set_tensor_parallel
from seqlab.tasks.task import of_all_ranks

Layout = tuple[str, int | None]
"""The strategy's word, and --tp."""


class KilledError(BaseException):
    pass


class Kill(Callback):
    """Ends the fit before the third micro-batch of its second epoch."""

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.current_epoch, batch_idx) == (1, 2):
            raise KilledError


def go_on(
    files: Path, folder: Path, layout: Layout, epochs: int, *, rows: int, callbacks: tuple[Callback, ...] = ()
) -> dict[str, Any]:
    """Fits until so many epochs are done, from the folder's last checkpoint if it is there.

    Args:
        rows: of a batch of all ranks.

    Returns:
        "losses" of the steps, averaged "weights" by name and "moments"; nothing of a fit that was killed.
    """
    L.seed_everything(0, verbose=False)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    word, tp = layout
    copies = ranks // (ranks if word == "tp" else tp or 1)
    data: Any
    data, make = kinds(files)["regression"]
    data.batch_size = rows // copies
    task = make(**told(data), warmup_steps=2, lr=1e-2, optimizer=partial(AdamW, eps=1e-3), schedule=Constant)
    notes = Notes()
    options: dict[str, Any] = {"limit_val_batches": 0, "max_epochs": epochs, "strategy": word, "devices": ranks}
    trainer = tiny_trainer(folder, [notes, AveragedWeights(0.9), *callbacks], **options)
    set_tensor_parallel(trainer, tp)
    last = folder / "checkpoints" / "last.ckpt"
    try:
        trainer.fit(task, data, ckpt_path=str(last) if last.exists() else None)
    except KilledError:
        return {}
    weights = trainer.strategy.lightning_module_state_dict()
    return {
        "losses": of_all_ranks(notes.losses)[0],
        "weights": {name: whole_weight(weight).flatten().tolist() for name, weight in weights.items()},
        "moments": _moments(last),
    }


def in_turns(files: Path, layouts: tuple[Layout, ...]) -> dict[str, Any]:
    """An epoch in each layout, and then what the last has; the "losses" of all."""
    folder = files / " then ".join(f"{word} {tp}" for word, tp in layouts)
    found = [go_on(files, folder, layout, epoch, rows=10) for epoch, layout in enumerate(layouts, start=1)]
    return found[-1] | {"losses": [loss for part in found for loss in part["losses"]]}


def one_epoch(files: Path, layout: Layout, number: int) -> dict[str, Any]:
    """The epoch of this number, after those that any ranks have trained, in batches of 8."""
    return go_on(files, files / "chain", layout, number, rows=8)


def killed_within_an_epoch(files: Path, layout: Layout, other: Layout) -> dict[str, Any]:
    """Compares, bit for bit, a resumed fit with one that was never killed; records the refusal of another layout."""
    whole = go_on(files, files / f"whole {layout}", layout, 2, rows=10)
    folder = files / f"killed {layout}"
    go_on(files, folder, layout, 2, rows=10, callbacks=(Kill(),))
    try:
        go_on(files, folder, other, 2, rows=10)
        refused = ""
    except ValueError as error:
        refused = str(error)
    resumed = go_on(files, folder, layout, 2, rows=10)
    same = {name: resumed[name] == whole[name] for name in ("weights", "moments")}
    return {**same, "losses": resumed["losses"] == whole["losses"][-len(resumed["losses"]) :], "refused": refused}


def _moments(path: Path) -> list[float]:
    """The optimiser's state of all weights, in their order."""
    (optimizer,) = read_checkpoint(path)["optimizer_states"]
    return [number for kept in optimizer["state"].values() for key in kept for number in kept[key].flatten().tolist()]
