"""Checkpoint files: whole or absent, intact or refused, also where they are written while the fit goes on."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from callbacks.tiny_fit import Diary, EndBefore, KilledError, diary, fit
from seqlab.checkpoints import checksummed_file
from seqlab.checkpoints.checksummed_file import CHECKSUM_SIZE, Hashing
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint

IO = AtomicCheckpointIO()
CHECKPOINT: dict[str, Any] = {
    "state_dict": {"weight": torch.arange(6.0).view(2, 3)},
    "epoch": 3,
    "seqlab": {"config": {"lr": 1e-3, "betas": [0.9, 0.99], "name": None}, "run_id": "1f2e"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    IO.save_checkpoint(CHECKPOINT, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def check_equal(loaded: dict[str, Any]) -> None:
    assert torch.equal(loaded["state_dict"]["weight"], CHECKPOINT["state_dict"]["weight"])
    assert {key: loaded[key] for key in ("epoch", "seqlab")} == {k: CHECKPOINT[k] for k in ("epoch", "seqlab")}


def test_what_is_saved_is_loaded_and_an_ordinary_torch_file(path: Path) -> None:
    for loaded in (IO.load_checkpoint(path), read_checkpoint(str(path)), torch.load(path, weights_only=True)):
        check_equal(loaded)


@pytest.mark.parametrize("cut", [False, True])
def test_any_flipped_bit_and_any_cut_is_refused(path: Path, cut: bool) -> None:
    intact = path.read_bytes()
    for place in [*range(0, len(intact), 7), *range(len(intact) - 150, len(intact))]:
        flipped = bytearray(intact)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(intact[:place] if cut else flipped)
        with pytest.raises(
            ValueError, match=r"last\.ckpt is not a complete seqlab checkpoint" if cut else r"last\.ckpt"
        ):
            read_checkpoint(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    torch.save(CHECKPOINT, tmp_path / "foreign.ckpt")
    with pytest.raises(ValueError, match=r"foreign\.ckpt is not a complete seqlab checkpoint"):
        read_checkpoint(tmp_path / "foreign.ckpt")
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "absent.ckpt")


@pytest.mark.parametrize("harmful", [Path("x"), np.float64(1.0), test_other_files_are_refused])
def test_what_would_not_load_is_not_saved(path: Path, harmful: object) -> None:
    with pytest.raises(ValueError, match=r"last\.ckpt would hold .* so it could not be loaded again"):
        IO.save_checkpoint({"state_dict": harmful}, path)
    check_equal(read_checkpoint(path))
    assert os.listdir(path.parent) == ["last.ckpt"]


def test_an_object_is_not_loaded_whatever_the_seal_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.checkpoints.checksummed_file._refuse_objects", lambda file, path: None)
    IO.save_checkpoint({"state_dict": Path("x")}, path)
    with pytest.raises(ValueError, match=r"last\.ckpt was not loaded: it holds an object"):
        read_checkpoint(path)


def sealed(path: Path, content: bytes) -> Path:
    with path.open("wb") as file:
        hashing = Hashing(file)
        hashing.write(content)
        hashing.seal()
    return path


def test_a_packed_file_is_refused_unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    IO.save_checkpoint({"state_dict": {"weight": torch.zeros(1 << 20)}}, path)
    with zipfile.ZipFile(path) as parts, zipfile.ZipFile(content := io.BytesIO(), "w") as small:
        for name in parts.namelist():
            small.writestr(name, parts.read(name), zipfile.ZIP_DEFLATED)
    packed = sealed(path.with_name("packed.ckpt"), content.getvalue())
    monkeypatch.setattr(torch, "load", None)
    assert packed.stat().st_size < 1 << 15
    with pytest.raises(ValueError, match=r"packed\.ckpt is damaged: its parts are larger than the file"):
        read_checkpoint(packed)


def test_a_hole_is_not_hashed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = path.read_bytes()
    with path.open("wb") as file:
        file.seek(2**34)
        file.write(content)
    monkeypatch.setattr(hashlib, "sha256", None)
    said = rf"last\.ckpt is damaged: it has {2**34 + len(content)} bytes, but its parts have \d+$"
    with pytest.raises(ValueError, match=said):
        read_checkpoint(path)


def test_what_torch_would_read_in_its_older_format_is_refused(path: Path) -> None:
    sealed(path, b"older" + path.read_bytes()[: -CHECKSUM_SIZE - 2] + bytes(2))
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged: it does not start like a zip file"):
        read_checkpoint(path)


def test_a_failure_while_writing_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(checkpoint: object, file: Any) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        IO.save_checkpoint({}, path)
    check_equal(read_checkpoint(path))
    assert os.listdir(path.parent) == ["last.ckpt"]


def test_the_file_is_synced_then_renamed_within_its_folder_then_the_folder_is_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        calls.append((source, target, len(source.read_bytes())))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    size = len(path.read_bytes())
    IO.save_checkpoint(CHECKPOINT, path)
    temporary = path.parent / ".last.ckpt.tmp"
    assert calls == [temporary, (temporary, path, size), path.parent]


def test_what_is_hashed_on_the_way_is_what_is_in_the_file(tmp_path: Path) -> None:
    parts = [b"", b"a", b"bc", np.arange(5.0).tobytes(), b"", b"d"]
    with (tmp_path / "file").open("wb") as file:
        hashing = Hashing(file)
        for part in parts:
            hashing.write(part)
    assert hashing.hexdigest() == hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()


def test_a_save_clears_what_a_killed_process_left_and_reads_nothing_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path.parent / ".last.ckpt.tmp").write_bytes(b"x" * 100_000)
    monkeypatch.setattr(hashlib, "file_digest", None)
    IO.save_checkpoint(CHECKPOINT, path)
    check_equal(read_checkpoint(path))
    assert os.listdir(path.parent) == ["last.ckpt"]
    for _ in range(2):
        IO.remove_checkpoint(path)
        assert os.listdir(path.parent) == []


class Held:
    """Writes nothing before it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.at_once, self.most = threading.Event(), 0, 0
        self._save = checksummed_file.save_checksummed
        monkeypatch.setattr("seqlab.checkpoints.io.save_checksummed", self.save)

    def save(self, checkpoint: dict[str, Any], path: Path) -> None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.go.wait(60)
        self._save(checkpoint, path)
        self.at_once -= 1


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    yield (held := Held(monkeypatch))
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
        checksummed_file.save_checksummed(checkpoint, path)

    whole = fit(tmp_path / "whole")
    monkeypatch.setattr("seqlab.checkpoints.io.save_checksummed", slowly)
    monkeypatch.setattr("callbacks.tiny_fit.AtomicCheckpointIO", lambda: AtomicCheckpointIO(in_background=True))
    last, at_the_end = tmp_path / "resumed" / "checkpoints" / "last.ckpt", []
    end = lambda *_: at_the_end.append(read_checkpoint(last)["global_step"])  # noqa: E731
    monkeypatch.setattr(Diary, "finalize", end)  # where a logger sends what is there
    with pytest.raises(KilledError):
        fit(tmp_path / "resumed", [EndBefore(10)])
    assert at_the_end == [10]
    assert fit(tmp_path / "resumed") == whole
    assert diary(tmp_path / "resumed") == diary(tmp_path / "whole")
