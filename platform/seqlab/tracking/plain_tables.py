"""The one look at a SQLite file before anything else is asked of it, without MLflow, which takes seconds to import."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from seqlab.regular_file import check_regular

BESIDE = ("-journal", "-wal", "-shm")
"""Endings of the files that SQLite reads with a database."""


def check_files(database: Path, what: str) -> None:
    """Refuses a database that is no regular file, or has beside it what is none, or a link.

    Raises:
        ValueError: one is a pipe, a device, a socket or a folder, or one beside it a link.
    """
    check_regular(database, what)
    for one in (Path(f"{database}{end}") for end in BESIDE):
        check_regular(one, f"beside {what},")
        if one.is_symlink():
            raise ValueError(f"beside {what}, {one} is a link; accepted: a regular file")


def check_tables(address: str) -> None:
    """Refuses a database with views, virtual tables, or triggers but MLflow's own, on a table that nothing here writes:
    whatever asks one may run for ever.

    Args:
        address: SQLite's URI.

    Raises:
        ValueError: there is one.
        sqlite3.Error: it cannot be read.
    """
    kinds = "type = 'view' OR (type = 'trigger' AND tbl_name != 'secrets') OR sql LIKE 'CREATE VIRTUAL%'"
    with closing(sqlite3.connect(address, uri=True)) as opened:
        if (found := opened.execute(f"SELECT type, name FROM sqlite_master WHERE {kinds}").fetchone()) is not None:
            raise ValueError(f"it has the {found[0]} {found[1]!r}, which is none of MLflow's or Optuna's")
