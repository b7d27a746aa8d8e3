"""Read-only access to a SQLite store. Nothing in its folder is ever changed."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic.script import ScriptDirectory
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking import MlflowClient
from mlflow.tracking._tracking_service.utils import _tracking_store_registry
from sqlalchemy import Engine, NullPool, create_engine

from seqlab.files.plain_tables import SQLITE, check_tables

SCHEME = "seqlab-as-it-is"
WAL = b"\2\2"
"""Bytes 18 and 19 of a database in WAL mode, whose newest pages may be in a separate file."""

_copies: list[TemporaryDirectory[str]] = []


def reading_client(database: Path) -> MlflowClient:
    """Read-only MLflow client of a database; it creates neither tables nor experiments.

    Raises:
        ValueError: the database is not a store, or was created by another version of MLflow.
        sqlite3.Error, OSError: the database cannot be read.
    """
    uri = address(database)
    _check_schema(uri)
    return MlflowClient(f"{SCHEME}:{uri}")


class _AsItIs(SqlAlchemyStore):
    """MLflow's store without the set-up in its constructor."""

    @classmethod
    def _get_or_create_engine(cls, db_uri: str) -> Engine:
        return create_engine(SQLITE, creator=lambda: _connect(db_uri.removeprefix(SQLITE)), poolclass=NullPool)

    def _initialize_store_state(self) -> None:
        """Does nothing; MLflow would add a default experiment."""


def _build(store_uri: str, artifact_uri: str | None = None) -> SqlAlchemyStore:
    return _AsItIs(SQLITE + store_uri.removeprefix(f"{SCHEME}:"), "")  # type: ignore[no-untyped-call]


_tracking_store_registry.register(SCHEME, _build)  # type: ignore[no-untyped-call]


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def address(database: Path) -> str:
    """Read-only SQLite URI of the database, or URI of a copy if SQLite would write next to the database: in WAL mode,
    or after a process was killed while writing."""
    read_only, beside = f"{database.as_uri()}?mode=ro", [Path(f"{database}{end}") for end in ("-journal", "-wal")]
    with database.open("rb") as file:
        copied = file.read(20)[18:] == WAL
    if not copied and beside[0].exists():
        try:
            with closing(_connect(read_only)) as opened:
                opened.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.OperationalError:
            copied = True
    if not copied:
        return read_only
    _copies.append(TemporaryDirectory())  # kept until the process ends, because MLflow caches open stores
    folder = Path(_copies[-1].name)
    for one in (database, *beside):
        if one.exists():
            shutil.copyfile(one, folder / one.name)
    return (folder / database.name).as_uri()


def _check_schema(uri: str) -> None:
    """Raises ValueError if MLflow would create or migrate tables."""
    with closing(_connect(uri)) as opened:
        check_tables(opened)
        if opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is None:
            raise ValueError("it has no MLflow tables")
        [found] = opened.execute("SELECT version_num FROM alembic_version").fetchone() or [None]
    known = ScriptDirectory.from_config(_get_alembic_config(""))  # type: ignore[no-untyped-call]
    if found == (here := known.get_current_head()):
        return
    if any(found == one.revision for one in known.walk_revisions()):
        raise ValueError(
            f"an older version of MLflow made it (schema {found}, here {here}); `mlflow db upgrade` upgrades a copy"
        )
    raise ValueError(
        f"another version of MLflow made it (schema {found}, here {here}); install that one, or a newer one"
    )
