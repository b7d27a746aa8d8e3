"""Atomic file writes, with one-sentence errors that give the reason and the state of the previous file."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SQLITE_REFUSED = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


class CannotWriteError(OSError):
    """A file could not be written; the message gives the reason and the state of the previous file."""


@contextmanager
def writing(file: Path, whole: str = "nothing of it is left") -> Iterator[None]:
    """Converts system errors during the writing of a file into a one-sentence error.

    Args:
        whole: state of the previous file, for the message.

    Raises:
        CannotWriteError: the system refused to write; other errors are passed on.
    """
    try:
        yield
    except CannotWriteError:
        raise
    except Exception as error:
        if (reason := why_not_written(error, file)) is None:
            raise
        raise CannotWriteError(f"{reason} while writing {file}; {whole}") from error


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder, which replaces the file at the end. After an error the file is not
    changed.

    Raises:
        CannotWriteError: the file could not be written.
    """
    partial = file.with_name(f".partial.{file.name}")
    with writing(file, "what was there before is whole" if file.exists() else "nothing of it is left"):
        try:
            yield partial
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents if they are missing.

    Raises:
        CannotWriteError: the folder could not be created.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Writes a text file atomically.

    Raises:
        CannotWriteError: the file could not be written; an older one is not changed.
    """
    with replacing(file) as partial:
        partial.write_text(text, encoding="utf-8")


def why_not_written(error: BaseException, file: Path) -> str | None:
    """Reason why the system refused to write, from an error or its causes; None if it did not."""
    chain: BaseException | None = error
    while chain is not None:
        number = chain.errno if isinstance(chain, OSError) else _number_of_sqlites(chain, file)
        if number is not None:
            return _reason(number, file)
        chain = chain.__cause__ or chain.__context__
    return None


def _number_of_sqlites(error: BaseException, file: Path) -> int | None:
    """System error number behind a SQLite error, which does not tell size limits, permissions and disks apart."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return errno.ENOSPC
    if code not in SQLITE_REFUSED:
        return None
    writable = all(os.access(path, os.W_OK) for path in (file, _existing(file)) if path.exists())
    return errno.EFBIG if writable else errno.EROFS


def _reason(number: int, file: Path) -> str:
    match number:
        case errno.ENOSPC:
            return f"no space left on {_device(file)}"
        case errno.EDQUOT:
            return f"the quota is used up on {_device(file)}"
        case errno.EFBIG if (limit := size_limit()) is not None:
            return f"files are limited to {limit} bytes (ulimit -f)"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return f"{_existing(file)} is read-only"
        case errno.EFBIG:
            return f"{_device(file)} fails, or cannot hold a file of this size"
        case _:
            return os.strerror(number)


def _device(file: Path) -> str:
    folder = _existing(file)
    while not folder.is_mount() and folder != folder.parent:
        folder = folder.parent
    try:
        import psutil
    except ImportError:  # a machine that only runs bundles may not have it
        return str(folder)
    names = [part.device for part in psutil.disk_partitions(all=True) if part.mountpoint == str(folder)]
    return f"{names[-1]} ({folder})" if names else str(folder)


def _existing(file: Path) -> Path:
    """Nearest existing parent folder of a file."""
    return next(folder for folder in file.absolute().parents if folder.exists())


def size_limit() -> int | None:
    """Maximum file size of this process in bytes; None = no limit."""
    if os.name != "posix":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
