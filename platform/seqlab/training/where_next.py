"""The last line of a fit: where the run and its checkpoint are, and what to do with them."""

from __future__ import annotations

import os

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger


class WhereNext(Callback):
    """Prints one line on stdout when a fit has ended and left a checkpoint."""

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        best, last = (getattr(trainer.checkpoint_callback, f"{which}_model_path", "") for which in ("best", "last"))
        if trainer.is_global_zero and (best or last):
            print(where_next(trainer.logger, best, last), flush=True)


def where_next(logger: Logger | None, best: str, last: str) -> str:
    """The line, for a logger that may have a run, and the paths of the checkpoints, of which one may be empty."""
    which, path = ("best", _shown(best)) if best else ("last", _shown(last))
    run_id = getattr(logger, "run_id", None)
    if run_id is None:
        return f"Checkpoint {path} · next: seqlab export {path} --out bundles/{which}"
    name = getattr(logger, "run_name", run_id)
    return f"Run {name} ({run_id[:8]}) · {which} checkpoint {path} · next: seqlab export {name} --out bundles/{name}"


def _shown(path: str) -> str:
    """Relative where that is shorter."""
    return min(path, os.path.relpath(path), key=len)
