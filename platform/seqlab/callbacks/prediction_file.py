"""The file that `seqlab predict` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from seqlab.tasks.task import of_all_ranks
from seqlab.whole_file import write_whole


class PredictionFile(Callback):
    """Writes what a task predicts of the test split as lines of JSON, one object a row, in the order of the split and
    whole or not at all. Beside what the task says, "row" is the row's place in the split, and "place" its file and
    line, where the data module knows them.

    Args:
        path: of the file; its folder exists.

    Raises:
        ValueError: when the prediction begins, there is no such folder; when it ends, a task of one's own has
            predicted something else than a list of such objects for each batch.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self.path.parent.is_dir():
            raise ValueError(f"--out {self.path}: there is no folder {self.path.parent}; name a file in one")

    def on_predict_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        batches: Any = trainer.predict_loop.predictions
        if not all(isinstance(said, list) and all(isinstance(one, dict) for one in said) for said in batches):
            name = type(pl_module).__name__
            raise ValueError(f"{name} predicts no list of objects for a batch; give it `predictions`, as of `Task`")
        found = [one for rank in of_all_ranks([one for said in batches for one in said]) for one in rank]
        if trainer.is_global_zero:
            place = getattr(trainer.datamodule, "place", None)  # type: ignore[attr-defined]
            lines = [_line(one, place) for one in sorted(found, key=lambda one: one.get("row", 0))]
            write_whole(self.path, "".join(lines))
            print(f"Predictions {self.path}")


def _line(said: dict[str, Any], place: Any) -> str:
    where = place("test", said["row"]) if place is not None and "row" in said else None
    named = said if where is None else {"row": said["row"], "place": where, **said}
    return json.dumps(named, ensure_ascii=False) + "\n"
