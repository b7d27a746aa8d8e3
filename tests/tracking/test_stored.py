"""Runs read without MLflow are those that MLflow reads; a store that is not as MLflow writes it is left to MLflow."""

from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqlab.tracking import runs, stored
from seqlab.tracking.readable import stored_runs
from seqlab.tracking.runs import TrackedRun, search_all
from seqlab.tracking.store import Store
from seqlab.tracking.stored import Rows
from tracking.tiny import edit, make_run

POINTS = {"val/loss": [(0, 2.0), (9, 1.5)], "odd": [(0, math.nan), (1, math.inf), (2, -math.inf), (3, 1.0)]}


@pytest.fixture(scope="module")
def filled(shared: Store) -> Store:
    """Runs that began at two times, of which one is deleted, and one has a deleted experiment."""
    for number in range(5):
        points = POINTS | {"at the end": [(number, math.nan)]}
        texts = {"p": str(number), "empty": "", "名前": "'\";--"}
        make_run(
            shared, f"run {number % 2}", points, params=texts, tags=texts, status=("FINISHED", "FAILED")[number % 2]
        )
    for experiment in ("others", "deleted"):
        make_run(shared, f"of {experiment}", POINTS, experiment=experiment)
    make_run(shared, "deleted")
    make_run(shared, "nothing")
    edit(
        shared,
        "UPDATE runs SET start_time = 1000 * (rowid % 2)",
        "UPDATE runs SET lifecycle_stage = 'deleted' WHERE name = 'deleted'",
        "UPDATE experiments SET lifecycle_stage = 'deleted' WHERE name = 'deleted'",
    )
    return shared


@pytest.fixture
def copied(filled: Store, tmp_path: Path) -> Store:
    return Store(shutil.copytree(filled.root, tmp_path / "mlruns"))


def said(run: TrackedRun) -> tuple[Any, ...]:
    """Everything that a run says of itself, in its order; NaN as a text, which is equal to itself."""
    told = (run.id, run.name, run.experiment, run.status, run.started, run.artifacts, list(run.tags.items()))
    curves = {name: run.history(name) for name in (*run.metrics, "nothing")}
    return *told, list(run.params.items()), repr(run.metrics), repr(curves)


@pytest.mark.parametrize("experiment", [None, "tests", "others", "deleted", "absent"])
def test_runs_are_those_that_mlflow_reads(
    experiment: str | None, filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, broken = search_all(filled, experiment=experiment)
    assert all(isinstance(run.entity, stored.StoredRun) for run in found)
    monkeypatch.setattr(runs, "stored_runs", lambda *_: None)
    theirs, broken_too = search_all(filled, experiment=experiment)
    assert not any(isinstance(run.entity, stored.StoredRun) for run in theirs)
    assert [*map(said, found)] == [*map(said, theirs)] and broken == broken_too == []
    assert len(found) == {None: 7, "tests": 6, "others": 1}.get(experiment, 0)


COMPARED = """
import sys
from seqlab.comparison.comparison import compare
compare().table()
sys.exit(any(name in sys.modules for name in ("mlflow", "sqlalchemy", "torch")))
"""


def test_a_comparison_imports_neither_mlflow_nor_torch(copied: Store) -> None:
    assert subprocess.run([sys.executable, "-c", COMPARED], cwd=copied.root.parent).returncode == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE alembic_version SET version_num = '451aebb31d03'",
        "INSERT INTO alembic_version VALUES ('451aebb31d03')",
        "DROP TABLE alembic_version",
        "UPDATE experiments SET workspace = 'theirs' WHERE name = 'others'",
        "UPDATE experiments SET name = x'ff' WHERE name = 'others'",
        "UPDATE runs SET name = '' WHERE name = 'nothing'",
        "UPDATE runs SET start_time = NULL WHERE name = 'nothing'",
        "UPDATE tags SET value = CAST(x'ff' AS TEXT)",
        "CREATE VIEW seen AS SELECT * FROM runs",
    ],
)
def test_a_store_that_is_not_as_mlflow_writes_it_is_left_to_mlflow(statement: str, copied: Store) -> None:
    assert stored_runs(copied, None) is not None
    edit(copied, statement)
    assert stored_runs(copied, None) is None


def test_an_experiment_whose_id_is_text_is_left_to_mlflow(copied: Store) -> None:
    """Such an id would be part of a query."""
    edit(copied, "CREATE TABLE free AS SELECT * FROM experiments")
    edit(copied, "DROP TABLE experiments")
    edit(copied, "ALTER TABLE free RENAME TO experiments")
    assert stored_runs(copied, None) is not None
    edit(copied, "UPDATE experiments SET experiment_id = '0) OR (1 = 1' WHERE name = 'others'")
    assert stored_runs(copied, None) is None


def test_curves_that_only_mlflow_can_read_are_read_by_it(copied: Store) -> None:
    (run,) = search_all(copied, experiment="others")[0]
    before = run.history("val/loss")
    edit(copied, "DROP INDEX index_metrics_run_uuid_key_step")
    assert run.history("val/loss") == before == [(0, 2.0), (9, 1.5)]


@pytest.mark.parametrize("files", [{}, {"a": "b = 1"}, {"a": 'revision = "a"', "b": 'revision = "b"'}])
def test_where_mlflow_has_other_migrations_its_own_reader_is_used(
    files: dict[str, str], copied: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mlflow" / "store" / "db_migrations" / "versions"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    there = SimpleNamespace(origin=str(tmp_path / "mlflow" / "__init__.py")) if files else None
    monkeypatch.setattr(stored, "find_spec", lambda _: there)
    assert stored_runs(copied, None) is None


def test_the_points_of_a_run_are_found_without_those_of_others(filled: Store) -> None:
    rows, queries = Rows(filled.root / "mlflow.db"), list[str]()
    rows._opened.set_trace_callback(queries.append)
    assert len(rows.points("0" * 32, "val/loss")) == 0
    ((*_, plan),) = rows._opened.execute(f"EXPLAIN QUERY PLAN {queries[0]}").fetchall()
    assert plan == "SEARCH metrics USING INDEX index_metrics_run_uuid_key_step (run_uuid=? AND key=?)"


def test_runs_are_read_as_they_are_at_one_time(copied: Store) -> None:
    """A fit that writes meanwhile waits until all is read."""
    database = copied.root / "mlflow.db"
    refused: list[bool] = []

    def write(_: str = "") -> None:
        with closing(sqlite3.connect(database, timeout=0)) as other:
            try:
                with other:
                    other.execute("UPDATE runs SET name = 'changed'")
                refused.append(False)
            except sqlite3.OperationalError as error:
                refused.append("locked" in str(error))

    rows = Rows(database)
    rows._opened.set_trace_callback(lambda query: write() if "latest_metrics" in query else None)
    assert {run.info.run_name for _, run in rows.runs(None)} == {"run 0", "run 1", "of others", "nothing"}
    write()
    assert refused == [True, False]
