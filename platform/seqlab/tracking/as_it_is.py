"""Read-only access to a SQLite store. Nothing in its folder is ever changed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from alembic.script import ScriptDirectory
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking import MlflowClient
from mlflow.tracking._tracking_service.utils import _tracking_store_registry
from sqlalchemy import Engine, NullPool, create_engine

from seqlab.files.plain_tables import SQLITE, check_tables
from seqlab.tracking.stored import address, connect

SCHEME = "seqlab-as-it-is"


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
        return create_engine(SQLITE, creator=lambda: connect(db_uri.removeprefix(SQLITE)), poolclass=NullPool)

    def _initialize_store_state(self) -> None:
        """Does nothing; MLflow would add a default experiment."""


def _build(store_uri: str, artifact_uri: str | None = None) -> SqlAlchemyStore:
    return _AsItIs(SQLITE + store_uri.removeprefix(f"{SCHEME}:"), "")  # type: ignore[no-untyped-call]


_tracking_store_registry.register(SCHEME, _build)  # type: ignore[no-untyped-call]


def _check_schema(uri: str) -> None:
    """Raises ValueError if MLflow would create or migrate tables."""
    with closing(connect(uri)) as opened:
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
