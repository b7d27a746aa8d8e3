"""`seqlab fit`, with tracking, progress and checkpoints on, against the same model in a bare PyTorch loop.

python benchmarks/fit_vs_bare_loop.py
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
import yaml
from lightning.pytorch.callbacks import Callback

from seqlab.cli import main as seqlab
from seqlab.tasks import LanguageModeling
from seqlab_data import TextDataModule

STEPS, ROUNDS, WARM_UP = 40, 3, 10
CONFIG = {
    "data": {"class_path": "TextDataModule", "seq_len": 256, "batch_size": 8},
    "model": {
        "class_path": "LanguageModeling",
        "model": {
            "class_path": "DecoderLM",
            "d_model": 256,
            "num_layers": 4,
            "mixer": {"class_path": "Attention", "num_heads": 4},
            "positions": "Learned",
        },
    },
    "trainer": {"max_steps": STEPS, "limit_val_batches": 0},
}

finished: list[float] = []
task: LanguageModeling


class StepClock(Callback):
    """Notes when each step ends, and keeps the task for the bare loop."""

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        finished.append(time.perf_counter())

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        global task
        assert isinstance(pl_module, LanguageModeling)
        task = pl_module


def fit(folder: str) -> list[float]:
    """Seconds of each step of `seqlab fit`."""
    finished.clear()
    config = Path(folder) / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    code = seqlab(["fit", "--config", str(config), "--trainer.callbacks", "__main__.StepClock"])
    assert code == 0
    return [after - before for before, after in itertools.pairwise(finished)][WARM_UP:]


def bare() -> list[float]:
    """Seconds of each step of a loop over the same model, batches and optimiser."""
    model = task.model.train()
    optimizer = task.optimizer(task.groups(model.named_parameters()), task.lr)
    data = TextDataModule(seq_len=256, batch_size=8)
    data.setup("fit")
    ends = []
    for batch in itertools.islice(data.train_dataloader(), STEPS):
        logits, _ = model(batch.tokens)
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-100).backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(ends)][WARM_UP:]


def main() -> None:
    torch.set_num_threads(1)
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for _ in range(ROUNDS):
            ours += fit(folder)
            theirs += bare()
    rates = [8 * 256 / statistics.median(times) for times in (ours, theirs)]
    print(f"seqlab fit {rates[0]:,.0f} tokens/s, bare loop {rates[1]:,.0f} tokens/s, ratio {rates[0] / rates[1]:.3f}")


if __name__ == "__main__":
    main()
