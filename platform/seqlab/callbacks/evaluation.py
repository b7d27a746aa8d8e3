"""Results of an evaluation: scores are written to the checkpoint's run, predictions to a file."""

from __future__ import annotations

import json
import sys
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from seqlab.files.atomic import write_whole
from seqlab.files.place_to_write import file_to_write
from seqlab.parallel import data_parallel
from seqlab.tracking.journal import Journal, now
from seqlab.tracking.params import flatten, read_by
from seqlab.tracking.runs import find_run, settle
from seqlab.tracking.store import Store
from seqlab.tracking.writes import EVALUATED_TAG, dataset_of, dataset_tag


def what_is_left(verb: str, config: dict[str, Any]) -> list[Callback]:
    """Callbacks that write the results of a verb, from its resolved config.

    Raises:
        ValueError: the prediction file cannot be written, as in `file_to_write`.
    """
    if verb == "predict":
        return [PredictionFile(config["out"])]
    return [RunScores(config)] if verb in ("validate", "test") else []


class RunScores(Callback):
    """Writes the scores of `seqlab test` and `seqlab validate` to the run of the checkpoint, at the checkpoint's step.
    The evaluated data, and any data options that differ from training, are written with them.

    Scores of a validation are named `validate/...`; `val/...` is the learning curve of the run itself.

    Args:
        config: resolved config of the evaluation.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._read_by = read_by(flatten(config))
        self._run_id: str | None = None
        self._step = 0

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        stored = checkpoint.get("seqlab", {})
        self._run_id, self._step = stored.get("run_id"), int(checkpoint["global_step"])
        before = read_by(flatten(stored.get("config", {})))
        known = [name for name in self._read_by if any(name.startswith(one) or one.startswith(name) for one in before)]
        # Options that an older version did not have keep their old behaviour, or change the digest of the data.
        self._differs = [f", {name} {self._read_by[name]}" for name in known if before.get(name) != self._read_by[name]]

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, "test")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write(trainer, "validate")

    def _write(self, trainer: L.Trainer, verb: str) -> None:
        if self._run_id is None or not trainer.is_global_zero:
            return
        settle(store := Store())
        try:
            run, time = find_run(self._run_id, store), now()
        except ValueError as error:
            print(f"the scores were not written to a run: {error}", file=sys.stderr)
            return
        named = {f"{verb}/{name.split('/', 1)[-1]}": value for name, value in trainer.callback_metrics.items()}
        journal = Journal(run.store, run.id)
        journal.write({"op": "scores", "points": [(name, float(v), time, self._step) for name, v in named.items()]})
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if hasattr(datamodule, "describe"):
            description = datamodule.describe()
            journal.write({"op": "dataset", "dataset": dataset_of(description), "context": verb})
            data = dataset_tag(description) + "".join(self._differs)
            journal.write({"op": "tags", "tags": {EVALUATED_TAG.format(verb): data}})


class PredictionFile(Callback):
    """Writes a task's predictions of the test split atomically as JSON lines, one object per row, in the order of the
    split. Besides the prediction itself, "row" is the row's index in the split, and "place" its file and line where
    the data module knows them.

    Args:
        path: path of the file, in the form that `file_to_write` accepts.

    Raises:
        ValueError: the path cannot be written or already exists; or, after prediction, a user's task has returned
            something other than a list of objects for a batch.
    """

    def __init__(self, path: str) -> None:
        self.path = file_to_write(path, '{"row": 0')

    def on_predict_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        batches: Any = trainer.predict_loop.predictions
        if not all(isinstance(said, list) and all(isinstance(one, dict) for one in said) for said in batches):
            name = type(pl_module).__name__
            raise ValueError(
                f"{name} does not predict a list of objects for a batch; define `predictions` as in `Task`"
            )
        mine = [one for said in batches for one in said]
        found = [one for rank in data_parallel(trainer).gather(mine) for one in rank]
        if trainer.is_global_zero:
            place = getattr(trainer.datamodule, "place", None)  # type: ignore[attr-defined]
            lines = [_line(one, place) for one in sorted(found, key=lambda one: one.get("row", 0))]
            write_whole(self.path, "".join(lines))
            print(f"Predictions {self.path}")


def _line(said: dict[str, Any], place: Any) -> str:
    where = place("test", said["row"]) if place is not None and "row" in said else None
    named = said if where is None else {"row": said["row"], "place": where, **said}
    return json.dumps(named, ensure_ascii=False) + "\n"
