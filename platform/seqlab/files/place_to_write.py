"""Checks of a verb's output location before it starts. Existing files are replaced only if the same verb wrote them,
and nothing is written into a store, a run or a bundle."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from seqlab.files.atomic import writing
from seqlab.files.plain_tables import SQLITE

HEAD = 4096
"""Number of bytes at the start of a file that are searched for its mark."""


def file_to_write(out: str, mark: str = "") -> Path:
    """Checks the output file named by `--out`.

    Args:
        out: path of the file.
        mark: text at the start of files that the verb writes, by which they may be replaced; "" = never replace.

    Raises:
        ValueError: the path is not valid for a file, or is taken.
        CannotWriteError: the folder is not writable.
    """
    path = _named(out, "a file")
    if path.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {path.parent}; name a file in one")
    check_around(f"--out {out}", path.absolute().parent)
    _check_replaced(path, mark)
    _check_writable(path.absolute().parent, path)
    return path


def files_to_write(out: str, marks: Mapping[str, str]) -> Path:
    """Checks the output folder named by `--out`, to which the verb writes several files. `make_folder` creates it
    before the first.

    Args:
        out: path of the folder.
        marks: mark of each file by its name; see `file_to_write`.

    Raises:
        ValueError: the path is not valid for a folder, or a file in it was not written by this verb.
        CannotWriteError: the folder is not writable.
    """
    path = _named(out, "a folder")
    _check_folder(out, path)
    for name, mark in marks.items():
        _check_replaced(path / name, mark)
    return path


def folder_to_write(out: str) -> Path:
    """Checks the output folder named by `--out`, which must be new or empty.

    Raises:
        ValueError: the path is not valid for a folder, or is taken.
    """
    path = _named(out, "a new folder")
    if not path.name or path.name == "..":
        raise ValueError(f"--out {out} is a folder that exists; name a new one")
    if path.is_dir() and any(path.iterdir()):
        raise ValueError(f"{path} exists and is not an empty folder; give a new one")
    _check_folder(out, path)
    return path


def _named(out: str, what: str) -> Path:
    if not out.strip():
        raise ValueError(f"--out is empty; name {what}")
    return Path(out)


def check_around(said: str, place: Path) -> None:
    """Raises ValueError if a folder is a store, a run or a bundle, or inside one. Writing next to a store is allowed if
    its folder contains the working folder.

    Args:
        said: option that names the location, for the message.
    """
    place, uri = place.resolve(), os.environ.get("MLFLOW_TRACKING_URI", "")
    store = Path(uri.removeprefix(SQLITE)).resolve().parent if uri.startswith(SQLITE) else None
    for folder in (place, *place.parents):
        inside = None
        if (folder / "manifest.json").is_file() and (folder / "manifest.sha256").is_file():
            inside = f"the bundle {folder}"
        elif re.fullmatch("[0-9a-f]{32}", folder.name) and (folder / "artifacts").is_dir():
            inside = f"the folder of run {folder.name}"
        elif not Path.cwd().is_relative_to(folder) and (
            folder.name == "mlruns" or folder == store or (folder / "mlflow.db").is_file()
        ):
            inside = f"the tracking store {folder}"
        if inside is not None:
            raise ValueError(f"{said} is in {inside}; name a place outside it")


def _check_folder(out: str, path: Path) -> None:
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if not there.is_dir():
        raise ValueError(f"--out {out}: {there} is a file; name a folder")
    check_around(f"--out {out}", path)
    _check_writable(there, path)


def _check_writable(folder: Path, path: Path) -> None:
    with writing(path), TemporaryFile(dir=folder):  # permission bits do not restrict root
        pass


def _check_replaced(path: Path, mark: str) -> None:
    if not path.exists() or (path.is_file() and mark and _has(path, mark)):
        return
    if path.is_file() and not mark:
        raise ValueError(f"{path} exists; give a new file")
    raise ValueError(f"{path} exists and was not written by this command; name another place, or remove it")


def _has(path: Path, mark: str) -> bool:
    """True if a file is empty or has the mark at its start."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head: bytes = file.read(HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return not head or mark.encode() in head
