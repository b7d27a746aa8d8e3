"""Checks of a SQLite file before its first query, without importing MLflow, which takes seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from seqlab.files.regular_file import check_regular

SQLITE = "sqlite:///"
BESIDE = ("-journal", "-wal", "-shm")
"""Suffixes of the auxiliary files that SQLite reads with a database."""


def check_files(database: Path, what: str) -> None:
    """Checks that a database and its auxiliary files are regular files.

    Args:
        what: the database's role, such as "the tracking store".

    Raises:
        ValueError: a file is a pipe, a device, a socket or a folder, or an auxiliary file is a link.
    """
    check_regular(database, what)
    for one in (Path(f"{database}{end}") for end in BESIDE):
        check_regular(one, f"beside {what},")
        if one.is_symlink():
            raise ValueError(f"beside {what}, {one} is a link; accepted: a regular file")


def check_tables(opened: sqlite3.Connection) -> None:
    """Checks that a database has no views, virtual tables or triggers, whose queries may never end. MLflow's own
    trigger is allowed, because it is on a table that seqlab never writes.

    Raises:
        ValueError: the database has one of these.
        sqlite3.Error: the database cannot be read.
    """
    kinds = "type = 'view' OR (type = 'trigger' AND tbl_name != 'secrets') OR sql LIKE 'CREATE VIRTUAL%'"
    if (found := opened.execute(f"SELECT type, name FROM sqlite_master WHERE {kinds}").fetchone()) is not None:
        raise ValueError(f"it has the {found[0]} {found[1]!r}, which is not MLflow's or Optuna's")


def check_tables_to_write(file: Path) -> list[str]:
    """Runs `check_tables` on a database opened for writing, and returns the names of its tables.

    SQLite needs a writable connection to roll back the journal of a process that was killed while writing.

    Raises:
        ValueError, sqlite3.Error: as `check_tables`.
    """
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as opened:
        check_tables(opened)
        return [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
