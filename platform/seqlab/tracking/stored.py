"""Fast reading of all runs of a SQLite store, without MLflow, which takes seconds to import and more to make objects of
every value. Only a healthy store is read this way; MLflow reads the others and says what is wrong."""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from seqlab.files.plain_tables import check_tables

WAL = b"\2\2"
"""Bytes 18 and 19 of a database in WAL mode, whose newest pages may be in a separate file."""
VALUE_OF_METRIC = "CASE WHEN is_nan THEN NULL ELSE value END"
VALUES = {"params": "value", "tags": "value", "latest_metrics": VALUE_OF_METRIC}
MIGRATION = re.compile(r'^(down_)?revision = "(\w+)"', re.MULTILINE)

_copies: list[TemporaryDirectory[str]] = []


class Info(NamedTuple):
    """Fields of an MLflow run's `info` that seqlab reads."""

    run_id: str
    run_name: str
    status: str
    start_time: int
    artifact_uri: str
    experiment_id: int


class Data(NamedTuple):
    """Parameters, tags and last metrics of a run, as in an MLflow run's `data`."""

    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]


class StoredRun(NamedTuple):
    """A run of a SQLite store, in the layout of MLflow's `Run`."""

    info: Info
    data: Data
    rows: Rows

    def points(self, metric: str) -> list[tuple[Any, Any]]:
        """Steps and values of a metric, in no order.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        return self.rows.points(self.info.run_id, metric)


class Rows:
    """Rows of a SQLite store, which is not changed.

    Args:
        database: file of the store.

    Raises:
        ValueError, sqlite3.Error, OSError: MLflow has to say what the file holds.
    """

    def __init__(self, database: Path) -> None:
        self._opened = connect(address(database))
        check_tables(self._opened)
        if self._opened.execute("SELECT version_num FROM alembic_version").fetchall() != [(_newest_schema(),)]:
            raise ValueError("its tables may be those of another version of MLflow")

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self._opened.close()

    def runs(self, experiment: str | None) -> list[tuple[str, StoredRun]]:
        """Runs of an experiment with its name, newest first; None = of all experiments.

        Raises:
            ValueError, sqlite3.Error: MLflow has to say what the rows hold.
        """
        with self._snapshot():
            known = self._all("SELECT experiment_id, name, lifecycle_stage, workspace FROM experiments")
            ours = [type(key) is int and isinstance(name, str) and space == "default" for key, name, _, space in known]
            if not all(ours):
                raise ValueError("an experiment is not one of ours")
            names = {key: name for key, name, stage, _ in known if stage == "active" and experiment in (None, name)}
            active = f"FROM runs WHERE lifecycle_stage = 'active' AND experiment_id IN ({', '.join(map(str, names))})"
            columns = "run_uuid, name, status, start_time, artifact_uri, experiment_id"
            rows = self._all(f"SELECT {columns} {active} ORDER BY start_time DESC, run_uuid")
            found = {row[0]: StoredRun(Info(*row), Data({}, {}, {}), self) for row in rows}
            for table, value in VALUES.items():
                of_run = {key: getattr(run.data, table.removeprefix("latest_")) for key, run in found.items()}
                query = f"SELECT run_uuid, key, {value} FROM {table} WHERE run_uuid IN (SELECT run_uuid {active})"
                for key, name, number in self._opened.execute(query):
                    of_run[key][name] = math.nan if number is None and table == "latest_metrics" else number
        return [(names[row[-1]], found[row[0]]) for row in rows]

    def points(self, run_id: str, metric: str) -> list[tuple[Any, Any]]:
        """Steps and values of a metric of a run."""
        # SQLite would choose an index that reads the metric's points of all runs.
        by_run = "FROM metrics INDEXED BY index_metrics_run_uuid_key_step WHERE run_uuid = ? AND key = ?"
        return self._all(f"SELECT step, {VALUE_OF_METRIC} {by_run}", run_id, metric)

    def _all(self, query: str, *values: str) -> list[Any]:
        return self._opened.execute(query, values).fetchall()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Context whose queries see one state of the store, whoever writes meanwhile."""
        self._opened.execute("BEGIN")
        try:
            yield
        finally:
            self._opened.execute("ROLLBACK")


def connect(uri: str) -> sqlite3.Connection:
    """Connection to a SQLite URI, for use in any thread."""
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def address(database: Path) -> str:
    """Read-only SQLite URI of the database, or URI of a copy if SQLite would write next to the database: in WAL mode,
    or after a process was killed while writing."""
    read_only, beside = f"{database.as_uri()}?mode=ro", [Path(f"{database}{end}") for end in ("-journal", "-wal")]
    with database.open("rb") as file:
        copied = file.read(20)[18:] == WAL
    if not copied and beside[0].exists():
        try:
            with closing(connect(read_only)) as opened:
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


def _newest_schema() -> str:
    """Schema of the installed MLflow: its one migration that no other follows.

    Raises:
        ValueError: the migrations are not where they were in the versions of MLflow that we know.
    """
    package = find_spec("mlflow")
    folder = Path(package.origin if package and package.origin else "").parent / "store/db_migrations/versions"
    found = [match for file in folder.glob("*.py") for match in MIGRATION.findall(file.read_text(encoding="utf-8"))]
    newest = {name for down, name in found if not down} - {name for down, name in found if down}
    if len(newest) != 1:
        raise ValueError("the installed MLflow has no newest schema")
    return str(newest.pop())
