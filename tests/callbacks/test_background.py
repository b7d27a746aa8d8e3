"""Checkpoints that are written while the fit goes on: the same files, and the same promise."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.tiny_fit import Diary, EndBefore, KilledError, diary, fit
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


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_what_is_written_is_what_was_there_when_it_was_saved(device: str, tmp_path: Path, held: Held) -> None:
    weight, files = torch.zeros(100_000, device=device), AtomicCheckpointIO(in_background=True)
    for step in range(2):
        files.save_checkpoint({"weight": weight, "same": weight[:3], "step": step}, tmp_path / "last.ckpt")
        weight += 1
        assert step == 1 or os.listdir(tmp_path) == []
        held.go.set()
        files.teardown()
        found = read_checkpoint(tmp_path / "last.ckpt")
        assert found["step"] == step and found["weight"].unique().tolist() == [step]
        assert found["same"].untyped_storage().data_ptr() == found["weight"].untyped_storage().data_ptr()


def test_a_second_save_waits_for_the_first(tmp_path: Path, held: Held) -> None:
    files = AtomicCheckpointIO(in_background=True)
    files.save_checkpoint({"step": 0}, tmp_path / "last.ckpt")
    threading.Timer(0.2, held.go.set).start()
    for step in range(1, 5):
        files.save_checkpoint({"step": step}, tmp_path / "last.ckpt")
        assert held.go.is_set()
    assert held.most == 1
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


def test_a_fit_that_writes_in_the_background_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(checkpoint: dict[str, Any], path: Path) -> None:
        time.sleep(0.05)
        sealed_file.save_sealed(checkpoint, path)

    whole = fit(tmp_path / "whole")
    monkeypatch.setattr("seqlab.checkpoint_io.save_sealed", slowly)
    monkeypatch.setattr("callbacks.tiny_fit.AtomicCheckpointIO", lambda: AtomicCheckpointIO(in_background=True))
    last, at_the_end = tmp_path / "resumed" / "checkpoints" / "last.ckpt", []
    end = lambda *_: at_the_end.append(read_checkpoint(last)["global_step"])  # noqa: E731
    monkeypatch.setattr(Diary, "finalize", end)  # where a logger sends what is there
    with pytest.raises(KilledError):
        fit(tmp_path / "resumed", [EndBefore(10)])
    assert at_the_end == [10]
    assert fit(tmp_path / "resumed") == whole
    assert diary(tmp_path / "resumed") == diary(tmp_path / "whole")
