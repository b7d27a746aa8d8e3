"""The first 50 losses of the quickstart's models, bit for bit: a change that is not meant to change numerics does not.

They depend on the machine and on torch, so they are kept by key. (The CPU's model is part of it: its kernels are chosen
by maker, not by instruction set alone.) Record a new key with
`SEQLAB_RECORD=1 python -m pytest tests/golden`, and commit losses.json with a reason.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from seqlab.tracking.provenance import cpu_model
from seqlab.training.config import config_path
from seqlab.training.fit import SeqlabCLI
from seqlab.training.quiet import quiet

STORED = Path(__file__).with_name("losses.json")
KEY = " ".join(
    (
        platform.system(),
        platform.machine(),
        torch.backends.cpu.get_cpu_capability(),
        torch.__version__.split("+")[0],
        "one thread",
        cpu_model(),
    )
)
SMALL = ["--data.seq_len=32", "--data.batch_size=8", "--model.model.d_model=32", "--trainer.max_steps=50"]
WIDTHS = {"lm/gru": ["--model.model.block.ffn.d_ff=384"]}  # as when its losses were recorded
ALONE = ["--trainer.logger=false", "--trainer.enable_checkpointing=false", "--trainer.limit_val_batches=0"]


class Losses(Callback):
    seen: list[str]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        Losses.seen = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any) -> None:
        Losses.seen.append(float(outputs["loss"]).hex())


class WithLosses(SeqlabCLI):
    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        trainer = super().instantiate_trainer(**kwargs)
        trainer.callbacks.append(Losses())  # type: ignore[attr-defined]
        return trainer


@pytest.mark.parametrize("name", ["lm/gru", "lm/attention-nope", "lm/attention-rope"])
def test_first_losses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quiet()
    WithLosses("fit", ["--config", str(config_path(name)), *SMALL, *WIDTHS.get(name, []), *ALONE])
    assert len(Losses.seen) == 50
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if os.environ.get("SEQLAB_RECORD"):
        stored.setdefault(KEY, {})[name] = Losses.seen
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    if name not in stored.get(KEY, {}):
        pytest.skip(f"no losses recorded for {KEY!r}; SEQLAB_RECORD=1 python -m pytest tests/golden records them")
    assert Losses.seen == stored[KEY][name]
