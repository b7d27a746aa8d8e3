"""The first 50 losses of the quickstart's models: a change that is not meant to change numerics does not.

Their last bits depend on the machine and on torch, so they are kept by key. (The CPU's model is part of it: its kernels
are chosen by maker, not by instruction set alone.) They are the same bit for bit where the key is known, and elsewhere
within `ELSEWHERE` of another key's. Record a new key with `SEQLAB_RECORD=1 python -m pytest tests/golden`, and commit
losses.json with a reason. All are of one text, the documentation of CPython 3.11.7.
"""

from __future__ import annotations

import json
import os
import platform
from hashlib import sha256
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from seqlab.cli.lightning_cli import SeqlabCLI
from seqlab.config.configs import config_path
from seqlab.config.quiet import quiet
from seqlab.tracking.provenance import cpu_model

STORED = Path(__file__).with_name("losses.json")
CHOOSERS = ("MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "LD_PRELOAD")
"""Variables that make libraries compute as on another processor."""

KEY = " ".join(
    (
        platform.system(),
        platform.machine(),
        torch.backends.cpu.get_cpu_capability(),
        torch.__version__.split("+")[0],
        "one thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads",
        cpu_model(),
        *(f"{name}={os.environ[name]}" for name in CHOOSERS if name in os.environ),
    )
)
ELSEWHERE = 1e-6
"""Relative tolerance: five times the most, 2.1e-7, by which any of these losses differed between PyTorch without
vectors, with AVX2 and with AVX-512, MKL for AMD, for Intel's AVX2 and AVX-512 and for any processor, and oneDNN with
SSE4.1."""

SMALL = ["--data.seq_len=32", "--data.batch_size=8", "--model.model.d_model=32", "--trainer.max_steps=50"]
WIDTHS = {"lm/gru": ["--model.model.block.ffn.d_ff=384"]}  # as when its losses were recorded
ALONE = ["--trainer.logger=false", "--trainer.enable_checkpointing=false", "--trainer.limit_val_batches=0"]
TEXT = "37d06970fc926e60c16dff401e441b84752446a36b6b64516c229fdec77e992c"
"""The sha256 of that text."""


class Losses(Callback):
    seen: list[float]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        Losses.seen = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any) -> None:
        Losses.seen.append(float(outputs["loss"]))


class WithLosses(SeqlabCLI):
    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        trainer = super().instantiate_trainer(**kwargs)
        trainer.callbacks.append(Losses())  # type: ignore[attr-defined]
        return trainer


@pytest.mark.skipif(
    sha256("".join(topics[name] for name in sorted(topics)).encode()).hexdigest() != TEXT,
    reason="the losses are of the documentation of CPython 3.11.7; this Python has another",
)
@pytest.mark.parametrize("name", ["lm/gru", "lm/attention-nope", "lm/attention-rope"])
def test_first_losses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quiet()
    WithLosses("fit", ["--config", str(config_path(name)), *SMALL, *WIDTHS.get(name, []), *ALONE])
    assert len(Losses.seen) == 50
    if os.environ.get("SEQLAB_RECORD"):
        stored = json.loads(STORED.read_text())
        stored.setdefault(KEY, {})[name] = " ".join(loss.hex() for loss in Losses.seen)
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    assert Losses.seen == kept(name, KEY)


def kept(name: str, key: str) -> Any:
    """The expected losses of a model: those of the key, or approximately those of another."""
    stored = {other: losses[name] for other, losses in json.loads(STORED.read_text()).items() if name in losses}
    losses = [float.fromhex(loss) for loss in (stored.get(key) or next(iter(stored.values()))).split()]
    return losses if key in stored else pytest.approx(losses, rel=ELSEWHERE)


def test_losses_of_an_unknown_machine_are_within_a_band() -> None:
    key = next(key for key, losses in json.loads(STORED.read_text()).items() if "lm/gru" in losses)
    losses = kept("lm/gru", key)
    assert [loss * (1 + 3e-7) for loss in losses] != losses
    assert [loss * (1 + 3e-7) for loss in losses] == kept("lm/gru", "another")
    assert [*losses[:-1], losses[-1] * (1 + 2e-6)] != kept("lm/gru", "another")
