"""A torch file that is whole or absent, that carries its sha256, and that loads only what is harmless."""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from seqlab.plain_values import MOST_VALUES, check_count
from seqlab.regular_file import check_regular

MARK = b"seqlab sha256="
SEAL_SIZE = len(MARK) + 64
_COMMENT_LENGTH_FIELD = 2


class Hashing:
    """A file that is written from its beginning to its end, and hashed on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._end = file, hashlib.sha256(), b""

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._digest.update(self._end)
        self._digest.update(view[:-_COMMENT_LENGTH_FIELD])
        self._end = bytes(view[-_COMMENT_LENGTH_FIELD:])
        return self._file.write(view)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def hexdigest(self) -> str:
        """The sha256 of all that has been written."""
        whole = self._digest.copy()
        whole.update(self._end)
        return whole.hexdigest()

    def seal(self) -> None:
        """Ends a zip file, which has no comment yet, with the sha256 of all that precedes it as the comment."""
        assert self._end == bytes(_COMMENT_LENGTH_FIELD), "torch.save is expected to write no zip comment"
        self._end = SEAL_SIZE.to_bytes(_COMMENT_LENGTH_FIELD, "little") + MARK
        self._file.seek(-_COMMENT_LENGTH_FIELD, os.SEEK_END)
        self._file.write(self._end + self.hexdigest().encode())


def save_sealed(checkpoint: dict[str, Any], path: Path) -> None:
    """Writes beside the path, syncs, renames and syncs the folder: what kills the process leaves the old or the new.

    Raises:
        ValueError: the checkpoint holds what would not load again.
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w+b") as file:
            hashing = Hashing(file)
            torch.save(checkpoint, hashing)
            _refuse_objects(file, path)
            hashing.seal()
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def load_sealed(path: str | Path) -> dict[str, Any]:
    """What `save_sealed` wrote, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a seqlab checkpoint, is cut short or damaged, or holds more than tensors, numbers,
            strings, lists and dicts.
    """
    check_regular(path, "checkpoint")
    with Path(path).open("rb") as file:
        _check_seal(file, path)
        file.seek(0)
        try:
            refuse_packed(file)
            checkpoint: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
            # None takes less than a byte, unless a list is stored once and named often.
            check_count("its pickle", checkpoint, max(MOST_VALUES, _size_of_pickle(file)))
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


def sync_folder(folder: Path) -> None:
    """Makes a rename last through a power cut, where the system lets a folder be synced."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def refuse_packed(file: IO[bytes]) -> None:
    """Refuses a file that would take more memory than it has bytes: what torch.save writes is not compressed."""
    with zipfile.ZipFile(file) as parts:
        size = file.seek(0, os.SEEK_END)
        if sum(part.file_size for part in parts.infolist()) > size:
            raise ValueError("its parts are larger than the file")
    file.seek(0)


def _size_of_pickle(file: IO[bytes]) -> int:
    with zipfile.ZipFile(file) as parts:
        return sum(part.file_size for part in parts.infolist() if part.filename.endswith("/data.pkl"))


def _refuse_objects(file: IO[bytes], path: Path) -> None:
    place = file.tell()
    file.seek(0)
    if objects := torch.serialization.get_unsafe_globals_in_checkpoint(file):
        raise ValueError(
            f"checkpoint {path} would hold {', '.join(sorted(objects))}, and could not be loaded again; state and "
            "hyper-parameters may hold tensors, numbers, strings, lists and dicts"
        )
    file.seek(place)


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
