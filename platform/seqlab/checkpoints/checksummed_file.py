"""Torch files that are written atomically, end with their sha256, and load only plain values and tensors."""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from seqlab.files.plain_values import check_pickle
from seqlab.files.regular_file import check_regular

MARK = b"seqlab sha256="
CHECKSUM_SIZE = len(MARK) + 64
_COMMENT_LENGTH_FIELD = 2


class Hashing:
    """Wrapper that hashes a sequentially written file."""

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
        """sha256 of everything written so far."""
        whole = self._digest.copy()
        whole.update(self._end)
        return whole.hexdigest()

    def seal(self) -> None:
        """Appends the sha256 of the preceding bytes to a zip file, as the zip comment, which must still be empty."""
        assert self._end == bytes(_COMMENT_LENGTH_FIELD), "torch.save is expected to write no zip comment"
        self._end = CHECKSUM_SIZE.to_bytes(_COMMENT_LENGTH_FIELD, "little") + MARK
        self._file.seek(-_COMMENT_LENGTH_FIELD, os.SEEK_END)
        self._file.write(self._end + self.hexdigest().encode())


def save_checksummed(checkpoint: dict[str, Any], path: Path) -> None:
    """Writes a temporary file, syncs, renames it and syncs the folder. A killed process leaves the old or the new file.

    Raises:
        ValueError: the checkpoint contains something that could not be loaded again.
        OSError: the file cannot be written.
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


def load_checksummed(path: str | Path, *, values: bool = True) -> dict[str, Any]:
    """Loads a checkpoint written by `save_checksummed`, on the CPU.

    Args:
        values: False = tensors are on the meta device, without memory, and the sha256 of their values is not checked.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a seqlab checkpoint, is truncated or damaged, or contains objects other than
            tensors, numbers, strings, lists and dicts.
    """
    check_regular(path, "checkpoint")
    with Path(path).open("rb") as file:
        seal = _seal(file, path)
        try:
            check_parts(file)
            if values:
                _check_hash(file, seal)
            check_pickle(pickle_of(file))
            checkpoint: dict[str, Any] = torch.load(file, map_location="cpu" if values else "meta", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"checkpoint {path} was not loaded: it holds an object other than tensors, numbers, strings, lists and "
                f"dicts: {error}"
            ) from error
        except Exception as error:
            raise ValueError(f"checkpoint {path} is damaged: {error}") from error
    if not isinstance(checkpoint, dict):
        raise ValueError(f"checkpoint {path} holds a {type(checkpoint).__name__}, not a dict")
    return checkpoint


def sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the system can sync a folder."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


PART_BYTES, DIRECTORY_BYTES = 2**12, 2**26
"""Upper limits, in bytes, on the zip overhead per part, including its name, and on the central directory."""


def check_parts(file: IO[bytes]) -> None:
    """Raises ValueError, before reading, if the file size does not match the sizes of its parts. A sparse file may take
    no disk space but long to hash, and a compressed one more memory than its size. torch.save does not compress.
    """
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # `ZipFile` reads a directory of any size
    if end and end[zipfile._ECD_SIZE] > DIRECTORY_BYTES:  # type: ignore[attr-defined]
        raise ValueError(f"its zip directory has more than {DIRECTORY_BYTES} bytes")
    with zipfile.ZipFile(file) as parts:
        sizes = [part.file_size for part in parts.infolist()]
    size = file.seek(0, os.SEEK_END)
    if sum(sizes) > size:
        raise ValueError("its parts are larger than the file")
    if sum(sizes) + PART_BYTES * (len(sizes) + 1) < size:
        raise ValueError(f"it has {size} bytes, but its parts have {sum(sizes)}")
    file.seek(0)


def pickle_of(file: IO[bytes]) -> bytes:
    """Pickle that `torch.load` will read from the file."""
    if not torch.serialization._is_zipfile(file):  # torch.load's own test; it would also read an older format
        raise ValueError("it does not start like a zip file")
    content: bytes = torch._C.PyTorchFileReader(file).get_record("data.pkl")
    file.seek(0)
    return content


def _refuse_objects(file: IO[bytes], path: Path) -> None:
    place = file.tell()
    file.seek(0)
    if objects := torch.serialization.get_unsafe_globals_in_checkpoint(file):
        raise ValueError(
            f"checkpoint {path} would hold {', '.join(sorted(objects))}, so it could not be loaded again; state and "
            "hyper-parameters may hold tensors, numbers, strings, lists and dicts only"
        )
    file.seek(place)


def _seal(file: IO[bytes], path: str | Path) -> bytes:
    """sha256 stored at the end of a file."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - CHECKSUM_SIZE))
    seal = file.read()
    if not seal.startswith(MARK):
        raise ValueError(
            f"{path} is not a complete seqlab checkpoint: it does not end with its sha256, so it was cut short, "
            "damaged, or written by something else"
        )
    return seal.removeprefix(MARK)


def _check_hash(file: IO[bytes], seal: bytes) -> None:
    digest = hashlib.sha256()
    remaining = file.seek(0, os.SEEK_END) - len(seal)
    file.seek(0)
    while chunk := file.read(min(remaining, 1 << 20)):
        digest.update(chunk)
        remaining -= len(chunk)
    if digest.hexdigest().encode() != seal:
        raise ValueError("it does not match its sha256; use another one")
    file.seek(0)
