"""Checksum verification of cache files, without reading all of them at each start.

A token file is read in full when it is written, and again when its modification time has changed. Silent disk
corruption is detected on reading: each block is checked when a process first reads from it.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTE = "checked.json"
"""File with each token file's modification time when it was checked, its sha256, and the CRC-32 of each block."""
BLOCK_BITS = 18
BLOCK = 1 << BLOCK_BITS
"""Number of bytes per checksummed block."""
LARGE = ".bin"


def sums_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and sha256 of each file. The checksums of token files are also stored in `NOTE`."""
    read = {file.name: _read(file) for file in folder.iterdir()}
    sums = {name: ((folder / name).stat().st_size, digest) for name, (digest, _) in read.items()}
    _note(folder, read, {})
    return sums


def intact(folder: Path, sums: Mapping[str, tuple[int, str]]) -> bool:
    """True if every file has the given size and sha256. A stored sha256 is reused if the modification time is
    unchanged.

    Raises:
        OSError: a file is missing.
    """
    noted, read = _noted(folder), {}
    for name, (size, digest) in sums.items():
        found = (folder / name).stat()
        if found.st_size != size:
            return False
        if noted.get(name, ())[:2] != [found.st_mtime_ns, digest]:
            read[name] = _read(folder / name)
            if read[name][0] != digest:
                return False
    _note(folder, read, noted)
    return True


class Blocks:
    """The blocks of a token file, each checked before it is first read.

    Args:
        path: path of the file.
        data: bytes of the file, memory-mapped.
    """

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self._path, self._data = path, data
        self._sums = _noted(path.parent).get(path.name, (0, "", []))[2]
        # Without stored checksums, the whole file was already checked in this process.
        self._unchecked = np.full(-(-len(data) // BLOCK), bool(self._sums))

    def check(self, places: NDArray[np.int64]) -> None:
        """Checks the blocks that hold the bytes at these offsets and were not checked before.

        Raises:
            ValueError: a block does not match its checksum.
        """
        if not self._unchecked.any():
            return
        blocks = places >> BLOCK_BITS
        for block in np.unique(blocks[self._unchecked[blocks]]).tolist():
            begin, end = block << BLOCK_BITS, (block + 1) << BLOCK_BITS
            if zlib.crc32(self._data[begin:end].tobytes()) != self._sums[block]:
                raise ValueError(
                    f"{self._path} is damaged between bytes {begin} and {end}; delete the folder "
                    f"{self._path.parent} to make its tokens again"
                )
            self._unchecked[block] = False


def _read(file: Path) -> tuple[str, list[int]]:
    """The sha256 of a file, and the CRC-32 of each block."""
    digest, blocks = sha256(), []
    with open(file, "rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
            blocks.append(zlib.crc32(block))
    return digest.hexdigest(), blocks


def _noted(folder: Path) -> dict[str, Any]:
    try:
        noted = json.loads((folder / NOTE).read_text())
        return noted if isinstance(noted, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _note(folder: Path, read: Mapping[str, tuple[str, list[int]]], noted: Mapping[str, Any]) -> None:
    """Stores the checksums of the token files among these, if the folder is writable. Sets their modification time 10
    seconds back, so that any later change differs, however coarse the file system's clock is."""
    then = time.time_ns() - 10 * 10**9
    new = folder / f"{NOTE}.{os.getpid()}"
    found = {}
    try:
        for name, sums in read.items():
            if name.endswith(LARGE):
                os.utime(folder / name, ns=(then, then))
                found[name] = ((folder / name).stat().st_mtime_ns, *sums)
        if found:
            new.write_text(json.dumps({**noted, **found}))
            os.replace(new, folder / NOTE)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
