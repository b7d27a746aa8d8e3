"""A fit that stops and resumes trains on the same batches as one that does not, with Lightning's own loops."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from data.helpers import QUIET
from seqlab_data import TextDataModule
from seqlab_data.tokenizers import ByteTokenizer
from trainers import quiet_trainer

pytestmark = QUIET
SEQ_LEN, BATCH_SIZE, NUM_BATCHES = 16, 4, 7


class Recorder(L.LightningModule):
    """A model of one weight, which notes the hash of each micro-batch and the optimiser steps before it."""

    def __init__(self, plan_steps: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.plan_steps = plan_steps
        self.seen: list[tuple[int, str]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in batch if part is not None)).hexdigest()
        self.seen.append((self.trainer.global_step, digest[:16]))
        return self.weight * batch[0].float().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self.weight.detach(), batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.plan_steps:  # it makes Lightning set up the loader before it has read the checkpoint
            assert self.trainer.estimated_stepping_batches > 0
        return torch.optim.SGD(self.parameters(), lr=0.01)


class SaveAfter(L.Callback):
    """Saves a checkpoint in one hook, once `batches` micro-batches are done."""

    def __init__(self, path: Path, hook: str, batches: int) -> None:
        self.path, self.batches = path, batches
        setattr(self, hook, self._save)

    def _save(self, trainer: L.Trainer, *_: Any) -> None:
        done: Any = trainer.fit_loop.epoch_loop.batch_progress.total
        if done.processed == self.batches and not trainer.sanity_checking and not self.path.exists():
            trainer.save_checkpoint(self.path)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    # 90% of it, the train split, is 431 bytes; with bos 26 full windows and a rest: 27 in batches of 4.
    path = tmp_path_factory.mktemp("resume") / "text.txt"
    path.write_bytes(bytes(32 + (7 * i * i + i) % 95 for i in range(479)))
    return str(path)


def make(text_file: str, num_workers: int = 0) -> TextDataModule:
    options: dict[str, Any] = {"tokenizer": ByteTokenizer, "seq_len": SEQ_LEN, "batch_size": BATCH_SIZE}
    cache = str(Path(text_file).parent / "cache")
    return TextDataModule(text_file, cache_dir=cache, num_workers=num_workers, **options)


def fit(data: Any, ckpt_path: Path | None = None, *callbacks: L.Callback, **options: Any) -> list[tuple[int, str]]:
    """The micro-batches of a fit with this data, or with text in a file."""
    data = make(data, options.pop("num_workers", 0)) if isinstance(data, str) else data
    model = Recorder(options.pop("plan_steps", False))
    options = {"max_epochs": 3, "use_distributed_sampler": False, "callbacks": list(callbacks), **options}
    quiet_trainer(Path(), **options).fit(model, data, ckpt_path=ckpt_path, weights_only=True)
    return model.seen


class RestoresLate(SingleDeviceStrategy):
    """Reads the checkpoint after it has set the optimisers up, as the strategies that shard a model do."""

    restore_checkpoint_after_setup = True


MID_EPOCH = ("on_train_batch_end", NUM_BATCHES + 4)
LAST_BATCH = ("on_train_batch_end", 2 * NUM_BATCHES)
LAST_VALIDATION = ("on_validation_end", 2 * NUM_BATCHES)
MID_VALIDATION = ("on_validation_end", NUM_BATCHES + 4)
EPOCH_END = ("on_train_epoch_end", 2 * NUM_BATCHES)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"accumulate_grad_batches": 2},
    {"max_steps": 20, "max_epochs": -1},
    {"plan_steps": True},
)
CASES: list[tuple[tuple[str, int], dict[str, Any], dict[str, Any]]] = [
    *((place, some, {}) for place in (MID_EPOCH, LAST_BATCH, LAST_VALIDATION, EPOCH_END) for some in OPTIONS),
    (MID_EPOCH, {"plan_steps": True}, {"num_workers": 2}),
    (MID_VALIDATION, {"val_check_interval": 4}, {}),
    (MID_EPOCH, {"plan_steps": True}, {"strategy": RestoresLate}),  # its loader is set up before the checkpoint is read
    (MID_EPOCH, {"plan_steps": True}, {"strategy": RestoresLate, "num_workers": 2}),
]
"""Places to save, options of both fits, and of the resumed one."""


@pytest.mark.parametrize(("place", "options", "resumed"), CASES, ids=str)
def test_a_resumed_fit_sees_the_same_batches(
    text_file: str, tmp_path: Path, place: tuple[str, int], options: dict[str, Any], resumed: dict[str, Any]
) -> None:
    path, batches = tmp_path / "some.ckpt", place[1]
    whole = fit(text_file, None, SaveAfter(path, *place), **options)
    more = {"strategy": RestoresLate(device="cpu")} if "strategy" in resumed else {}
    assert fit(text_file, path, **options | resumed | more) == whole[batches:]
    state = torch.load(path, weights_only=True)["TextDataModule"]
    assert (state["epoch"], state["batch"]) == divmod(batches, NUM_BATCHES)


def test_a_fit_that_max_steps_ended_goes_on_where_it_ended(text_file: str, tmp_path: Path) -> None:
    path = tmp_path / "some.ckpt"
    whole = fit(text_file, max_steps=18, max_epochs=-1)
    first = fit(text_file, None, SaveAfter(path, "on_train_epoch_end", 10), max_steps=10, max_epochs=-1)
    assert first + fit(text_file, path, max_steps=18, max_epochs=-1) == whole


def test_a_datamodule_that_resumed_begins_again_in_a_new_fit(text_file: str, tmp_path: Path) -> None:
    path, data = tmp_path / "some.ckpt", make(text_file)
    whole = fit(text_file, None, SaveAfter(path, *MID_EPOCH))
    assert fit(data, path) == whole[NUM_BATCHES + 4 :]
    assert fit(data) == whole
