"""Checkpoint files: whole or absent, intact or refused."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqlab.checkpoint_io import AtomicCheckpointIO, read_checkpoint
from seqlab.sealed_file import SEAL_SIZE, Hashing

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
        with pytest.raises(ValueError, match=r"last\.ckpt is not a whole seqlab checkpoint" if cut else r"last\.ckpt"):
            read_checkpoint(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    torch.save(CHECKPOINT, tmp_path / "foreign.ckpt")
    with pytest.raises(ValueError, match=r"foreign\.ckpt is not a whole seqlab checkpoint"):
        read_checkpoint(tmp_path / "foreign.ckpt")
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "absent.ckpt")


@pytest.mark.parametrize("harmful", [Path("x"), np.float64(1.0), test_other_files_are_refused])
def test_what_would_not_load_is_not_saved(path: Path, harmful: object) -> None:
    with pytest.raises(ValueError, match=r"last\.ckpt would hold .* could not be loaded again"):
        IO.save_checkpoint({"state_dict": harmful}, path)
    check_equal(read_checkpoint(path))
    assert os.listdir(path.parent) == ["last.ckpt"]


def test_an_object_is_not_loaded_whatever_the_seal_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.sealed_file._refuse_objects", lambda file, path: None)
    IO.save_checkpoint({"state_dict": Path("x")}, path)
    with pytest.raises(ValueError, match=r"last\.ckpt holds an object"):
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
    said = rf"last\.ckpt is damaged: it has {2**34 + len(content)} bytes, its parts \d+$"
    with pytest.raises(ValueError, match=said):
        read_checkpoint(path)


def test_what_torch_would_read_in_its_older_format_is_refused(path: Path) -> None:
    sealed(path, b"older" + path.read_bytes()[: -SEAL_SIZE - 2] + bytes(2))
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged: it does not begin as a zip file"):
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
