"""Folders that are made once for what they are made of, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

SUMS = "sums.json"


def cached_folder(key: Any, make: Callable[[Path], None], root: str | Path | None = None) -> Path:
    """The folder with this key. If it is missing or damaged it is made: under another name, then renamed.

    Any number of processes may call this at once.

    Args:
        key: of JSON values, what decides the folder's content.
        make: fills an empty folder with files.
        root: folder of the caches; None = `$SEQLAB_CACHE`, or `seqlab` in `$XDG_CACHE_HOME` or `~/.cache`.

    Raises:
        OSError: a file cannot be read or written.
    """
    root = Path(root).expanduser() if root is not None else _default_root()
    folder = root / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    if not _intact(folder):
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{folder.name}.lock"):
            if not _intact(folder):
                _replace(folder, make)
    return folder


def _replace(folder: Path, make: Callable[[Path], None]) -> None:
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        make(temporary)
        sums = {file.name: [file.stat().st_size, _file_sha256(file)] for file in temporary.iterdir()}
        (temporary / SUMS).write_text(json.dumps(sums))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _intact(folder: Path) -> bool:
    """Whether a cache is there and every file of it has the size and sha256 that it was written with."""
    try:
        sums = json.loads((folder / SUMS).read_text())
        return bool(sums) and all(
            (folder / name).stat().st_size == size and _file_sha256(folder / name) == sha256
            for name, (size, sha256) in sums.items()
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _default_root() -> Path:
    if root := os.environ.get("SEQLAB_CACHE"):
        return Path(root).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqlab"


def _file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
