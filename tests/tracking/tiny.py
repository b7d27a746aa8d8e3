"""A fit of a moment, and runs without one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from seqlab.batch import IGNORE, TokenBatch
from seqlab.tracking.journal import Journal
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.store import Store

VOCAB_SIZE, SEQ_LEN, BATCH_SIZE, BATCHES = 11, 6, 4, 8
IGNORED_A_WINDOW = 2


class TinyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(VOCAB_SIZE, 8), nn.Dropout(0.1), nn.Linear(8, VOCAB_SIZE))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.layers(tokens)
        return logits

    def state_size(self, seq_len: int) -> int:
        return 3 * seq_len


class TinyTask(L.LightningModule):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.model = TinyModel()
        self.lr = lr
        self.losses: list[float] = []

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        loss = self._loss(batch) * (1 + 0.1 * random.random() + 0.1 * np.random.random())
        self.losses.append(loss.item())
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self.log("val/loss", self._loss(batch), batch_size=BATCH_SIZE)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def _loss(self, batch: TokenBatch) -> Tensor:
        logits = self.model(batch.tokens).flatten(0, 1)
        return nn.functional.cross_entropy(logits, batch.targets.flatten(), ignore_index=IGNORE)


class Batches(Dataset[TokenBatch]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> TokenBatch:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, VOCAB_SIZE, (BATCH_SIZE, SEQ_LEN), generator=generator)
        targets = tokens.roll(-1, 1)
        targets[:, -IGNORED_A_WINDOW:] = IGNORE
        return TokenBatch(tokens, targets, torch.full((BATCH_SIZE,), SEQ_LEN))


class TinyData(L.LightningDataModule):
    seq_len = SEQ_LEN

    def describe(self) -> dict[str, Any]:
        return {"name": "tiny", "source": "made up", "digest": "d" * 64, "splits": {"train": {"tokens": 128}}}

    def train_dataloader(self) -> DataLoader[TokenBatch]:
        return DataLoader(Batches(), batch_size=None)

    def val_dataloader(self) -> DataLoader[TokenBatch]:
        return DataLoader(Batches(), batch_size=None)


def fit(
    logger: RunLogger | bool,
    callbacks: Sequence[Callback] = (),
    *,
    task: L.LightningModule | None = None,
    seed: int = 0,
    ckpt_path: str | None = None,
    **trainer: Any,
) -> tuple[L.Trainer, L.LightningModule]:
    """Two epochs of 8 steps with a checkpoint after each validation, points logged every other step."""
    L.seed_everything(seed, verbose=False)
    task = task or TinyTask()
    options: dict[str, Any] = {"max_epochs": 2, "log_every_n_steps": 2, "num_sanity_val_steps": 0, "accelerator": "cpu"}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, **trainer}
    checkpoints = ModelCheckpoint(monitor="val/loss", filename="best", save_last=True, enable_version_counter=False)
    fitter = L.Trainer(logger=logger, callbacks=[*callbacks, checkpoints], **options)
    fitter.fit(task, datamodule=TinyData(), ckpt_path=ckpt_path)
    return fitter, task


def assert_same(one: L.LightningModule, other: L.LightningModule) -> None:
    """Fails where two fits had other losses, or ended with other weights."""
    assert isinstance(one, TinyTask) and isinstance(other, TinyTask)
    assert one.losses == other.losses
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def edit(store: Store, *statements: str, values: Sequence[str] = ()) -> None:
    """Changes the database of a store behind its back."""
    with closing(sqlite3.connect(store.root / "mlflow.db")) as database, database:
        for statement in statements:
            database.execute(statement, values)


def content(root: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def make_run(
    store: Store,
    name: str,
    points: dict[str, list[tuple[int, float]]] | None = None,
    *,
    experiment: str = "tests",
    status: str = "FINISHED",
    tags: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
) -> str:
    """A run that says these things of itself; its id."""
    journal = Journal(store)
    journal.create(experiment, name, tags or {})
    listed = [[key, value, 0, step] for key, values in (points or {}).items() for step, value in values]
    journal.write({"op": "points", "points": listed})
    journal.write({"op": "params", "params": params or {}})
    journal.write({"op": "status", "status": status, "time": 0})
    return journal.run_id
