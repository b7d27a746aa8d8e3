"""Files that are whole or absent; where one cannot be written, why, and what is whole, in one sentence."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SQLITE_REFUSED = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


class CannotWriteError(OSError):
    """A file could not be written; the message says why, and what is whole."""


@contextmanager
def writing(file: Path, whole: str = "nothing of it is left") -> Iterator[None]:
    """States in one sentence what the system refuses while a file is written.

    Args:
        whole: what is unharmed.

    Raises:
        CannotWriteError: the system refused; other errors pass.
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
    """Yields a path beside the file. What is written there replaces the file at the end; after an error the file is
    what it was.

    Raises:
        CannotWriteError: it could not be written.
    """
    partial = file.with_name(f".partial.{file.name}")
    with writing(file, "what was there before is whole" if file.exists() else "nothing of it is left"):
        try:
            yield partial
            os.replace(partial, file)
        finally:
            partial.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Creates a folder and those above it, if they are missing.

    Raises:
        CannotWriteError: it could not be created.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Writes a text file, or leaves what was there.

    Raises:
        CannotWriteError: it could not be written.
    """
    with replacing(file) as partial:
        partial.write_text(text, encoding="utf-8")


def why_not_written(error: BaseException, file: Path) -> str | None:
    """The system's refusal behind an error or its causes, in words; None if it refused nothing."""
    chain: BaseException | None = error
    while chain is not None:
        number = chain.errno if isinstance(chain, OSError) else _number_of_sqlites(chain, file)
        if number is not None:
            return _reason(number, file)
        chain = chain.__cause__ or chain.__context__
    return None


def _number_of_sqlites(error: BaseException, file: Path) -> int | None:
    """The system's error behind one of SQLite's, which names a size limit, a folder or a disk alike."""
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
            return f"files may have {limit} bytes at most here (ulimit -f)"
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return f"{_existing(file)} is read-only"
        case errno.EFBIG:
            return f"{_device(file)} fails, or takes no file of this size"
        case _:
            return os.strerror(number)


def _device(file: Path) -> str:
    folder = _existing(file)
    while not folder.is_mount() and folder != folder.parent:
        folder = folder.parent
    try:
        import psutil
    except ImportError:  # on a machine that only runs bundles
        return str(folder)
    names = [part.device for part in psutil.disk_partitions(all=True) if part.mountpoint == str(folder)]
    return f"{names[-1]} ({folder})" if names else str(folder)


def _existing(file: Path) -> Path:
    """The folder that the file is to be in, or the one that its folders are to be in."""
    return next(folder for folder in file.absolute().parents if folder.exists())


def size_limit() -> int | None:
    """Bytes that a file of this process may have; None = any number."""
    if os.name != "posix":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
