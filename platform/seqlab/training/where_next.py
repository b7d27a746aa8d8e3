"""The last line of a fit: where the run and its checkpoint are, and what to do with them."""

from __future__ import annotations

import os

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

EXPORT = "seqlab export {run} --out bundles/{name}"


class WhereNext(Callback):
    """Prints one line on stdout when a fit has ended and left a checkpoint."""

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        best, last = (getattr(trainer.checkpoint_callback, f"{which}_model_path", "") for which in ("best", "last"))
        if trainer.is_global_zero and (best or last):
            command = getattr(pl_module, "next_command", EXPORT)
            print(where_next(trainer.logger, best, last, command), flush=True)


def where_next(logger: Logger | None, best: str, last: str, command: str = EXPORT) -> str:
    """The line, for a logger that may have a run, and the paths of the checkpoints, of which one may be empty.

    Args:
        command: what comes next, of a `{run}` whose short name is `{name}`.
    """
    which, path = ("best", _shown(best)) if best else ("last", _shown(last))
    run_id = getattr(logger, "run_id", None)
    if run_id is None:
        return f"Checkpoint {path} · next: {command.format(run=path, name=which)}"
    name = getattr(logger, "run_name", run_id)
    return f"Run {name} ({run_id[:8]}) · {which} checkpoint {path} · next: {command.format(run=name, name=name)}"


def _shown(path: str) -> str:
    """Relative where that is shorter."""
    return min(path, os.path.relpath(path), key=len)
