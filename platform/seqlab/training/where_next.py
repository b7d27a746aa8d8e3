"""The last line of a fit: where the run and its checkpoint are, and what to do with them."""

from __future__ import annotations

import os
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback


class WhereNext(Callback):
    """Prints one line on stdout when a fit has ended and left a checkpoint."""

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        best, last = (getattr(trainer.checkpoint_callback, f"{which}_model_path", "") for which in ("best", "last"))
        if trainer.is_global_zero and not trainer.fast_dev_run and (best or last):
            print(where_next(trainer, best, last), flush=True)


def where_next(trainer: L.Trainer, best: str, last: str) -> str:
    checkpoint = f"{'best' if best else 'last'} checkpoint {_shown(best or last)}"
    run_id = getattr(trainer.logger, "run_id", None)
    if run_id is None:
        return f"{checkpoint} · next: seqlab export {_shown(best or last)} --out bundles/{Path(best or last).stem}"
    name = getattr(trainer.logger, "run_name", run_id)
    return f"Run {name} ({run_id[:8]}) · {checkpoint} · next: seqlab export {name} --out bundles/{name}"


def _shown(path: str) -> str:
    """Relative where that is shorter."""
    return min(path, os.path.relpath(path), key=len)
