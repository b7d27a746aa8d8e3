"""Checkpoints that are written while the fit goes on: the same files, and the same promise."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from callbacks.tiny_fit import Diary, TinyData, TinyTask, digest, losses, tiny_trainer
from seqlab import sealed_file
from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint


class Held:
    """Writes nothing before it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.at_once, self.most = threading.Event(), 0, 0
        self._save = sealed_file.save_sealed
        monkeypatch.setattr("seqlab.checkpoint_io.save_sealed", self.save)

    def save(self, checkpoint: dict[str, Any], path: Path) -> None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.go.wait(60)
        self._save(checkpoint, path)
        self.at_once -= 1


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.go.set()


def test_what_is_written_is_what_was_there_when_it_was_saved(tmp_path: Path, held: Held) -> None:
    weight, files = torch.zeros(1000), AtomicCheckpointIO(in_background=True)
    files.save_checkpoint({"weight": weight, "same": weight[:3], "step": 1}, tmp_path / "last.ckpt")
    weight += 1
    assert os.listdir(tmp_path) == []
    held.go.set()
    files.teardown()
    first = read_checkpoint(tmp_path / "last.ckpt")
    assert first["weight"].sum() == 0 and first["step"] == 1
    assert first["same"].untyped_storage().data_ptr() == first["weight"].untyped_storage().data_ptr()
    files.save_checkpoint({"weight": weight}, tmp_path / "last.ckpt")
    files.teardown()
    assert read_checkpoint(tmp_path / "last.ckpt")["weight"].sum() == 1000


def test_a_second_save_waits_for_the_first(tmp_path: Path, held: Held) -> None:
    files = AtomicCheckpointIO(in_background=True)
    threading.Timer(0.2, held.go.set).start()
    for step in range(5):
        files.save_checkpoint({"step": step}, tmp_path / "last.ckpt")
    assert held.go.is_set() and held.most == 1
    files.teardown()
    assert read_checkpoint(tmp_path / "last.ckpt") == {"step": 4}


@pytest.mark.parametrize("then", ["save", "teardown"])
def test_what_went_wrong_is_raised_once_by_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    path, files = tmp_path / "last.ckpt", AtomicCheckpointIO(in_background=True)
    files.save_checkpoint({"step": 1}, path)
    files.teardown()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        files.save_checkpoint({"step": 2}, path)
        with pytest.raises(
            OSError, match=r"no space left on .* while writing .*last\.ckpt; the one before it is whole"
        ):
            files.teardown() if then == "teardown" else files.save_checkpoint({"step": 3}, path)
    files.teardown()
    assert read_checkpoint(path) == {"step": 1} and os.listdir(tmp_path) == ["last.ckpt"]


class Stop(L.Callback):
    """Ends the fit before its second epoch's third micro-batch, while `last` is being written slowly."""

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.current_epoch, batch_idx) == (1, 3):
            raise KeyboardInterrupt


def test_a_fit_that_writes_in_the_background_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(checkpoint: dict[str, Any], path: Path) -> None:
        time.sleep(0.05)
        sealed_file.save_sealed(checkpoint, path)

    def fit(folder: Path, *callbacks: L.Callback, **flags: Any) -> str:
        trainer, task, last = tiny_trainer(folder, callbacks, **flags), TinyTask(), folder / "checkpoints" / "last.ckpt"
        trainer.fit(task, datamodule=TinyData(), ckpt_path=str(last) if last.exists() else None)
        return digest(task)

    whole = fit(tmp_path / "whole")
    monkeypatch.setattr("seqlab.checkpoint_io.save_sealed", slowly)
    monkeypatch.setattr("callbacks.tiny_fit.AtomicCheckpointIO", lambda: AtomicCheckpointIO(in_background=True))
    last, at_the_end = tmp_path / "resumed" / "checkpoints" / "last.ckpt", []
    end = lambda *_: at_the_end.append(read_checkpoint(last)["global_step"])  # noqa: E731
    monkeypatch.setattr(Diary, "finalize", end)  # where a logger sends what is there
    with pytest.raises(SystemExit):
        fit(tmp_path / "resumed", Stop())
    assert at_the_end == [10]
    assert fit(tmp_path / "resumed") == whole
    assert losses(tmp_path / "resumed") == losses(tmp_path / "whole")


@pytest.mark.cuda
def test_what_is_written_of_a_device_is_what_was_there(tmp_path: Path, held: Held) -> None:
    weight, files = torch.zeros(100_000, device="cuda"), AtomicCheckpointIO(in_background=True)
    for step in range(2):
        files.save_checkpoint({"weight": weight, "step": step}, tmp_path / "last.ckpt")
        weight += 1
        held.go.set()
        files.teardown()
        found = read_checkpoint(tmp_path / "last.ckpt")
        assert found["step"] == step and found["weight"].tolist() == [float(step)] * 100_000
