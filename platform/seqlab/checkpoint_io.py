"""Checkpoint files that are whole or absent, and that are refused when a single bit is wrong."""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from lightning.fabric.plugins import CheckpointIO

from seqlab.whole_file import writing

MARK = b"seqlab sha256="
SEAL_SIZE = len(MARK) + 64
_COMMENT_LENGTH_FIELD = 2


class AtomicCheckpointIO(CheckpointIO):
    """Writes a checkpoint whole or not at all, and loads only what is intact and harmless.

    A checkpoint is written to a temporary file in its own folder, synced, and renamed into place, so that whatever
    kills the process leaves the old file or the new one. It loads with `weights_only`, always.

    It carries its own sha256, as the comment that the zip format allows at the end of a file. A second file could
    not be renamed in the same instant, and would stay behind when the checkpoint is copied; this way it is one
    ordinary torch file, which `torch.load` reads too.

    Args:
        check: looks at what is loaded before it is used, and raises ValueError if it does not fit.
    """

    def __init__(self, check: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._check = check

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes the checkpoint, replacing an older one of that name.

        Raises:
            CannotWriteError: the file could not be written; an older one is untouched.
            ValueError: the checkpoint holds what would not load again; an older one is untouched.
        """
        path = Path(path)
        with writing(path, "the one before it is whole" if path.exists() else "there was none before it"):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(checkpoint, path)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[[Any, str], Any] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Reads a checkpoint with its tensors on the CPU; `map_location` and `weights_only` change nothing.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a seqlab checkpoint, is cut short or damaged, or holds more than tensors,
                numbers, strings, lists and dicts.
        """
        checkpoint = read_checkpoint(path)
        if self._check is not None:
            self._check(checkpoint)
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """What `AtomicCheckpointIO` saved, on the CPU; raises as `AtomicCheckpointIO.load_checkpoint`."""
    with Path(path).open("rb") as file:
        _check_seal(file, path)
        file.seek(0)
        try:
            _refuse_packed(file)
            checkpoint: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"checkpoint {path} holds an object that is neither tensor, number, string, list nor dict, "
                f"and is not loaded: {error}"
            ) from error
        except Exception as error:
            raise ValueError(f"checkpoint {path} is damaged: {error}") from error
    if not isinstance(checkpoint, dict):
        raise ValueError(f"checkpoint {path} holds a {type(checkpoint).__name__}, not a dict")
    return checkpoint


def _refuse_packed(file: IO[bytes]) -> None:
    """Refuses a file that would take more memory than it has bytes: what torch.save writes is not compressed."""
    with zipfile.ZipFile(file) as parts:
        size = file.seek(0, os.SEEK_END)
        if sum(part.file_size for part in parts.infolist()) > size:
            raise ValueError("its parts are larger than the file")
    file.seek(0)


def _write(checkpoint: dict[str, Any], path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w+b") as file:
            torch.save(checkpoint, file)
            _refuse_objects(file, path)
            _seal(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _refuse_objects(file: IO[bytes], path: Path) -> None:
    file.seek(0)
    if objects := torch.serialization.get_unsafe_globals_in_checkpoint(file):
        raise ValueError(
            f"checkpoint {path} would hold {', '.join(sorted(objects))}, and could not be loaded again; state and "
            "hyper-parameters may hold tensors, numbers, strings, lists and dicts"
        )


def _seal(file: IO[bytes]) -> None:
    """Ends a zip file, which has no comment yet, with the sha256 of all that precedes it as the comment."""
    file.seek(-_COMMENT_LENGTH_FIELD, os.SEEK_END)
    assert file.read() == bytes(_COMMENT_LENGTH_FIELD), "torch.save is expected to write no zip comment"
    file.seek(-_COMMENT_LENGTH_FIELD, os.SEEK_END)
    file.write(SEAL_SIZE.to_bytes(_COMMENT_LENGTH_FIELD, "little") + MARK)
    file.flush()
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.write(digest.encode())


def _check_seal(file: IO[bytes], path: str | Path) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - SEAL_SIZE))
    seal = file.read()
    if not seal.startswith(MARK):
        raise ValueError(
            f"{path} is not a whole seqlab checkpoint: it does not end with its sha256, so it was cut short, "
            "damaged, or written by something else"
        )
    digest = hashlib.sha256()
    file.seek(0)
    remaining = size - 64
    while chunk := file.read(min(remaining, 1 << 20)):
        digest.update(chunk)
        remaining -= len(chunk)
    if digest.hexdigest().encode() != seal[len(MARK) :]:
        raise ValueError(f"checkpoint {path} is damaged: it does not match the sha256 it carries; use another one")


def _sync_folder(folder: Path) -> None:
    """Makes a rename last through a power cut, where the system lets a folder be synced."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
