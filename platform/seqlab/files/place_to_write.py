"""A verb's place to write: what is there is replaced only if it is what the verb writes, and no store, run or bundle is
written into. Told before the verb works."""

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
"""Bytes of a file in which its mark is."""


def file_to_write(out: str, mark: str = "") -> Path:
    """The file that `--out` names.

    Args:
        mark: a text in the head of what the verb writes, by which a file of it is replaced; "" = none ever is.

    Raises:
        ValueError: it names no place of a file, or one that is taken.
        CannotWriteError: nothing can be written there.
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
    """Folder that `--out` names, in which the verb writes these files. `make_folder` creates it
    before the first.

    Args:
        marks: of each file, as of `file_to_write`.

    Raises:
        ValueError: it names no place of a folder, or a file in it is another's.
        CannotWriteError: nothing can be written there.
    """
    path = _named(out, "a folder")
    _check_folder(out, path)
    for name, mark in marks.items():
        _check_replaced(path / name, mark)
    return path


def folder_to_write(out: str) -> Path:
    """The new or empty folder that `--out` names.

    Raises:
        ValueError: it names no place of a folder, or one that is taken.
    """
    path = _named(out, "a new folder")
    if not path.name or path.name == "..":
        raise ValueError(f"--out {out} is a folder that is there; name a new one")
    _check_folder(out, path)
    if path.exists() and any(path.iterdir()):
        raise ValueError(f"{path} exists and is not an empty folder; give a new one")
    return path


def _named(out: str, what: str) -> Path:
    if not out.strip():
        raise ValueError(f"--out is empty; name {what}")
    return Path(out)


def check_around(said: str, place: Path) -> None:
    """Raises ValueError where a folder is one of a store, a run or a bundle, or in one. Whoever works in a store's own
    folder may write beside it.

    Args:
        said: what names the place, for the message.
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
            raise ValueError(f"{said} is in {inside}; name a place outside of it")


def _check_folder(out: str, path: Path) -> None:
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if not there.is_dir():
        raise ValueError(f"--out {out}: {there} is a file; name a folder")
    check_around(f"--out {out}", path)
    _check_writable(there, path)


def _check_writable(folder: Path, path: Path) -> None:
    with writing(path), TemporaryFile(dir=folder):  # permissions alone refuse root nothing
        pass


def _check_replaced(path: Path, mark: str) -> None:
    if not path.exists() or (path.is_file() and mark and _has(path, mark)):
        return
    if path.is_file() and not mark:
        raise ValueError(f"{path} exists; give a new file")
    raise ValueError(f"{path} is there, and is nothing that this command has written; name another place, or remove it")


def _has(path: Path, mark: str) -> bool:
    """True for a file that is empty, or has the mark in its head."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head: bytes = file.read(HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    return not head or mark.encode() in head
