"""The scores of a test or a validation, written to the run whose checkpoint was evaluated."""

from __future__ import annotations

import sys
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from seqlab.tracking.journal import Journal, now
from seqlab.tracking.runs import find_run
from seqlab.tracking.writes import dataset_of


class RunScores(Callback):
    """Writes the scores of `seqlab test` and `seqlab validate` to the run of the checkpoint, at the checkpoint's step,
    with the data that they are of.

    A validation's are named `validate/...`: `val/...` is the run's own learning curve, of its own data.
    """

    def __init__(self) -> None:
        self._run_id: str | None = None
        self._step = 0

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._run_id, self._step = checkpoint.get("seqlab", {}).get("run_id"), int(checkpoint["global_step"])

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, "test")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, "validate")

    def _write(self, trainer: L.Trainer, verb: str) -> None:
        if self._run_id is None or not trainer.is_global_zero:
            return
        try:
            run, time = find_run(self._run_id), now()
        except ValueError as error:
            print(f"the scores are written to no run: {error}", file=sys.stderr)
            return
        named = {f"{verb}/{name.split('/', 1)[-1]}": value for name, value in trainer.callback_metrics.items()}
        journal = Journal(run.store, run.id)
        journal.write({"op": "scores", "points": [(name, float(v), time, self._step) for name, v in named.items()]})
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if hasattr(datamodule, "describe"):
            journal.write({"op": "dataset", "dataset": dataset_of(datamodule.describe()), "context": verb})
