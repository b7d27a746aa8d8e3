"""A fit of a second, with all that makes resuming hard: dropout, noise in the data, accumulation, a schedule."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from seqlab.callbacks.checkpoint import Checkpoints
from seqlab.callbacks.exact_resume import ExactResume
from seqlab.checkpoints.io import AtomicCheckpointIO
from seqlab.config.quiet import quiet
from seqlab.models import DecoderLM
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab_data.text import TextDataModule

SEED = 7
NUM_SAMPLES, BATCH_SIZE = 28, 4
BATCHES_AN_EPOCH = NUM_SAMPLES // BATCH_SIZE
ACROSS: dict[str, Any] = {"max_epochs": -1, "max_steps": 17, "check_val_every_n_epoch": None, "val_check_interval": 5}
FLAGS: dict[str, dict[str, Any]] = {
    "epochs": {},
    "accumulation": {"accumulate_grad_batches": 2},
    "steps, validation across epochs": ACROSS,
    "steps, no validation": {"max_epochs": -1, "max_steps": 12, "limit_val_batches": 0},
    "validation inside an accumulation": {"val_check_interval": 3, "accumulate_grad_batches": 2},
    "a part of each epoch": {"limit_train_batches": 5},
    "bf16": {"precision": "bf16-mixed"},
}
"""Fits that go on exactly."""
QUICK = ("accumulation", "steps, validation across epochs")


class KilledError(BaseException):
    pass


class EndBefore(Callback):
    """Ends a fit before a micro-batch, counted from 0 over all epochs; -1 = never."""

    def __init__(self, stop_at: int = -1) -> None:
        self.stop_at = stop_at

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx == self.stop_at:
            raise KilledError


class Weights(EndBefore):
    """The weights after each optimiser step and in each validation, and an end before a micro-batch."""

    def __init__(self, stop_at: int = -1) -> None:
        super().__init__(stop_at)
        self.trained: list[Tensor] = []
        self.validated: list[Tensor] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if not trainer.fit_loop.epoch_loop._should_accumulate():
            self.trained.append(vector(pl_module))

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.sanity_checking:
            self.validated.append(vector(pl_module))


class NoisySamples(Dataset[Tensor]):
    """Sample (epoch, index): its noise is a function of both, whichever process draws it."""

    def __getitem__(self, key: tuple[int, int]) -> Tensor:
        epoch, index = key
        noise = np.random.default_rng((SEED, epoch, index)).normal(scale=0.1, size=8)
        return torch.linspace(-1, index / NUM_SAMPLES, 8) + torch.from_numpy(noise).float()


class PureBatches(Sampler[list[tuple[int, int]]]):
    """Batch b of epoch e is a function of (seed, e, b, rank, world)."""

    def __init__(self, epoch: int, start: int, rank: int, world: int) -> None:
        self.epoch, self.start, self.rank, self.world = epoch, start, rank, world

    @property
    def sampler(self) -> PureBatches:
        """Lightning announces epochs to a batch sampler's sampler only."""
        return self

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def __len__(self) -> int:
        return BATCHES_AN_EPOCH // self.world

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order = np.random.default_rng((SEED, self.epoch)).permutation(NUM_SAMPLES).tolist()
        mine = order[self.rank :: self.world]
        for batch in range(self.start, len(self)):
            yield [(self.epoch, k) for k in mine[batch * BATCH_SIZE : (batch + 1) * BATCH_SIZE]]


class TinyData(L.LightningDataModule):
    def __init__(self, num_workers: int = 0) -> None:
        super().__init__()
        self.num_workers = num_workers
        self.position = (0, 0)

    def train_dataloader(self) -> DataLoader[Tensor]:
        assert self.trainer is not None
        batches = PureBatches(*self.position, self.trainer.global_rank, self.trainer.world_size)
        options: dict[str, Any] = {"batch_sampler": batches, "num_workers": self.num_workers}
        loader: Any = DataLoader(NoisySamples(), collate_fn=torch.stack, **options)
        # Tells Lightning that it resumes; its place is the datamodule's to keep.
        loader.state_dict, loader.load_state_dict = dict, lambda state: None
        return loader

    def val_dataloader(self) -> DataLoader[Tensor]:
        return DataLoader(NoisySamples(), batch_sampler=[[(0, 0), (0, 1)]] * 2, collate_fn=torch.stack)

    def state_dict(self) -> dict[str, int]:
        assert self.trainer is not None
        loop = self.trainer.fit_loop
        epoch = loop.epoch_progress.current.ready - 1
        batch = loop.epoch_loop.batch_progress.current.ready
        if batch >= self.trainer.num_training_batches:
            epoch, batch = epoch + 1, 0
        return {"epoch": epoch, "batch": batch}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.position = state_dict["epoch"], state_dict["batch"]


class TinyTask(L.LightningModule):
    """Dropout in training; validation draws from every generator, as it may."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        jitter = float(np.random.normal(scale=0.01))
        loss = (self.model(batch + jitter).squeeze(1) - batch.sum(dim=1)).square().mean()
        self.log("train/loss", loss.detach())
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        torch.rand(3), np.random.rand(2)
        self.log("val/loss", (self.model(batch).squeeze(1) - batch.sum(dim=1)).square().mean(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Diary(Logger):
    """Writes each logged loss as a line, so that nothing is lost with the process."""

    name = version = "diary"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        folder.mkdir(exist_ok=True)
        self.path = folder / "diary"
        self.checkpoint_dir = folder / "checkpoints"
        self.run_id = "1f2e"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        for key in ("train/loss", "val/loss"):
            if key in metrics:
                self.write(key, step, metrics[key])

    def write(self, key: str, step: int | None, value: float) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([key, step, value.hex()]) + "\n")

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to keep."""

    @property
    @rank_zero_experiment
    def experiment(self) -> None:
        return None


class Losses(Callback):
    """Writes the loss of each micro-batch to the diary."""

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if isinstance(trainer.logger, Diary):
            trainer.logger.write(f"batch {batch_idx}", trainer.current_epoch, outputs["loss"].item())


def tiny_trainer(folder: Path, callbacks: Sequence[Callback] = (), **flags: Any) -> L.Trainer:
    """Its checkpoints and diary are in the folder."""
    defaults: dict[str, Any] = {"max_epochs": 3, "log_every_n_steps": 1, "use_distributed_sampler": False}
    defaults |= {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
    callbacks = [ExactResume(SEED), Losses(), Checkpoints(every_n_steps=2), *callbacks]
    return L.Trainer(logger=Diary(folder), callbacks=callbacks, plugins=[AtomicCheckpointIO()], **{**defaults, **flags})


def fit(
    folder: Path, callbacks: Sequence[Callback] = (), num_workers: int = 0, task: TinyTask | None = None, **flags: Any
) -> str:
    """Fits, from `last` if there is one, and returns the sha256 of the weights."""
    return _fit(folder, tiny_trainer(folder, callbacks, **flags), task or TinyTask(), TinyData(num_workers))


def fit_text(folder: Path, callbacks: Sequence[Callback] = (), num_workers: int = 0, **flags: Any) -> str:
    """Like `fit`, with seqlab's own model, task and data."""
    data = text_data(folder.parent, num_workers)
    data.setup("fit")
    torch.manual_seed(SEED)
    model = partial(DecoderLM, d_model=8, num_layers=1, dropout=0.2)
    task = LanguageModeling(data.vocab_size, data.seq_len, model=model, warmup_steps=3)
    return _fit(folder, tiny_trainer(folder, callbacks, **flags), task, data)


def text_data(folder: Path, num_workers: int = 0) -> TextDataModule:
    """Windows that are all different."""
    path = folder / "text.txt"
    if not path.exists():
        path.write_text(" ".join(f"{k * k}" for k in range(100)))
    return TextDataModule(str(path), seq_len=8, batch_size=8, num_workers=num_workers, seed=SEED, cache_dir=str(folder))


def fit_in_process(fit: Callable[..., str], folder: Path, flags: dict[str, Any]) -> None:
    """The target of a process that will be killed. Its workers are its own children, which notice its end."""
    multiprocessing.set_start_method("fork", force=True)
    fit(folder, **flags)


def _fit(folder: Path, trainer: L.Trainer, task: L.LightningModule, data: L.LightningDataModule) -> str:
    quiet()
    torch.set_num_threads(1)
    last = folder / "checkpoints" / "last.ckpt"
    trainer.fit(task, datamodule=data, ckpt_path=str(last) if last.exists() else None)
    return digest(task)


def digest(module: nn.Module) -> str:
    """The sha256 of the weights."""
    return hashlib.sha256(b"".join(w.numpy().tobytes() for w in module.state_dict().values())).hexdigest()


def vector(module: nn.Module) -> Tensor:
    """All weights, one after the other."""
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


def diary(folder: Path) -> dict[tuple[str, int], set[str]]:
    """(metric, step) and (batch, epoch): the values written for it, by however many processes."""
    entries: dict[tuple[str, int], set[str]] = {}
    for line in (folder / "diary").read_text().splitlines():
        key, step, value = json.loads(line)
        entries.setdefault((key, step), set()).add(value)
    return entries


def check_goes_on(
    folder: Path,
    stop: Callable[[Callable[..., str], Any], object],
    stops: Iterable[Any],
    fit: Callable[..., str] = fit,
    **flags: Any,
) -> None:
    """Checks that fits which `stop` has interrupted in each of these ways equal one that was not interrupted, in every
    loss, logged point and weight."""
    whole = fit(folder / "whole", **flags)
    for number, each in enumerate(stops):
        stopped = folder / f"{number}"
        stop(partial(fit, stopped, **flags), each)
        assert fit(stopped, **flags) == whole, each
        assert diary(stopped) == diary(folder / "whole"), each
