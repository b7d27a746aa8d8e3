"""A store that is read stays as it is, whatever state its file is in, and whichever version of MLflow made it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from seqlab.files.plain_tables import BESIDE
from seqlab.tracking.journal import Journal
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.runs import find_run, search, settle
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import Store, UnreachableError
from tracking.tiny import content, edit, make_run

HOT = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE runs SET status = 'FAILED'")
database.executemany("INSERT INTO tags VALUES (?, 'x', (SELECT run_uuid FROM runs))", [(f"k{n}",) for n in range(9999)])
os._exit(9)
"""
"""Ends a process in the middle of a write, when SQLite has written some of it to the file."""


def read(store: Store) -> None:
    """Finds the run, and sees that the store is what it was."""
    before = content(store.root)
    for _ in range(2):
        run = find_run("theirs", Store(store.root))
        assert (run.status, run.history("x")) == ("FINISHED", [(3, 1.0)])
    assert content(store.root) == before


@pytest.fixture(scope="module")
def filled(shared: Store) -> Path:
    make_run(shared, "theirs", {"x": [(3, 1.0)]})
    return shared.root


@pytest.fixture
def theirs(filled: Path, tmp_path: Path) -> Store:
    return Store(shutil.copytree(filled, tmp_path / "mlruns"))


def test_a_store_without_mlflows_own_experiment(theirs: Store) -> None:
    edit(theirs, "DELETE FROM experiments WHERE experiment_id = 0")
    read(theirs)


def test_a_store_in_wal_mode(theirs: Store, tmp_path: Path) -> None:
    edit(theirs, "UPDATE runs SET status = 'RUNNING'")
    with closing(sqlite3.connect(theirs.root / "mlflow.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("UPDATE runs SET status = 'FINISHED'")
        database.commit()
        for end in ("", "-wal"):  # as of a process that is gone: the last one to close would empty it
            shutil.copy(theirs.root / f"mlflow.db{end}", tmp_path)
        assert (tmp_path / "mlflow.db-wal").stat().st_size > 0
    for path in theirs.root.glob("mlflow.db*"):
        path.unlink()
    for end in ("", "-wal"):
        (tmp_path / f"mlflow.db{end}").rename(theirs.root / f"mlflow.db{end}")
    read(theirs)


def test_a_store_whose_process_was_killed_while_it_wrote(theirs: Store) -> None:
    done = subprocess.run([sys.executable, "-c", HOT, str(theirs.root / "mlflow.db")])
    assert done.returncode == 9 and (theirs.root / "mlflow.db-journal").stat().st_size > 0
    read(theirs)
    make_run(Store(theirs.root), "next")
    assert not (theirs.root / "mlflow.db-journal").exists(), "who writes restores it"
    read(theirs)


def test_a_store_that_is_being_written(theirs: Store) -> None:
    with closing(sqlite3.connect(theirs.root / "mlflow.db", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE runs SET status = 'FAILED'")
        assert (theirs.root / "mlflow.db-journal").exists()
        assert find_run("theirs", Store(theirs.root)).status == "FINISHED"
        database.execute("ROLLBACK")


TO_OLDER = "UPDATE alembic_version SET version_num = '451aebb31d03'"


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["UPDATE alembic_version SET version_num = 'f0'"], r"another version of MLflow made it \(schema f0, "),
        (
            [TO_OLDER],
            r"an older version of MLflow made it \(schema 451aebb31d03, .* `mlflow db upgrade` upgrades a copy",
        ),
        (["DROP TABLE registered_models", TO_OLDER], r"an older version of MLflow made it \(schema 451aebb31d03, "),
        (["DELETE FROM alembic_version"], r"another version of MLflow made it \(schema None, "),
        (["DROP TABLE alembic_version"], "it has no MLflow tables"),
    ],
)
def test_a_store_of_another_version_is_refused_and_not_upgraded(
    statements: list[str], said: str, theirs: Store
) -> None:
    edit(theirs, *statements)
    before = content(theirs.root)
    with pytest.raises(ValueError, match=f"the tracking store sqlite:///.* cannot be opened: {said}"):
        search(Store(theirs.root))
    assert content(theirs.root) == before


DIARY = b"my diary, which is not a database" * 10


@pytest.mark.parametrize(("wrong", "ask"), [(b"", search), (DIARY, search), (DIARY, lambda store: store.client)])
def test_a_file_that_is_no_store_is_refused_and_kept(wrong: bytes, ask: Callable[[Store], Any], root: Path) -> None:
    (root / "mlflow.db").write_bytes(wrong)
    with pytest.raises(ValueError, match="cannot be opened"):
        ask(Store(root))
    assert content(root) == {str(root / "mlflow.db"): wrong}


def test_no_call_writes(theirs: Store) -> None:
    with pytest.raises(UnreachableError), theirs.calls(reads=True) as client:
        client.set_tag(find_run("theirs", theirs).id, "a", "b")
    assert "a" not in find_run("theirs", theirs).tags


def test_a_run_of_this_host_whose_process_is_gone_is_shown_as_killed_and_marked_by_who_writes(store: Store) -> None:
    run_id = make_run(store, "gone", tags=process_tags() | {"process.start": "1.0"}, status="RUNNING")
    before = content(store.root)
    run = find_run(run_id, store)
    assert run.status == "KILLED" and "the process is gone" in run.tags["failure"]
    assert content(store.root) == before and run.entity.info.status == "RUNNING"
    settle(store)
    assert find_run(run_id, store).entity.info.status == "KILLED"


def test_a_command_that_reads_sends_nothing_and_says_so(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    Journal(store).create("tests", "left", process_tags() | {"process.start": "1.0"}, later=True)
    Journal(store).create("tests", "at work", process_tags(), later=True)
    assert search(store) == [] and search(store) == []
    [said] = caplog.messages
    assert said == (
        f"{store.uri} lacks the writes that 1 run kept in {unsent(store)}; seqlab fit, resume or test sends them"
    )
    assert os.listdir(store.root) == ["mlflow.db"]
    settle(store)
    assert {run.name for run in search(store)} == {"left", "at work"}


@pytest.mark.parametrize("end", BESIDE)
@pytest.mark.parametrize("kind", ["pipe", "device", "link", "folder"])
def test_what_sqlite_reads_beside_a_store_is_a_regular_file(kind: str, end: str, theirs: Store) -> None:
    place = Path(f"{theirs.root / 'mlflow.db'}{end}")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero" if kind == "device" else "/etc/hosts")
    with pytest.raises(ValueError, match=rf"beside the tracking store, .*db{end} is a {kind}; accepted: a regular"):
        Store(theirs.root)


ENDLESS = "WITH RECURSIVE r(name) AS (SELECT 'tests' UNION ALL SELECT name FROM r) SELECT * FROM r"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (("ALTER TABLE experiments RENAME TO kept", f"CREATE VIEW experiments AS {ENDLESS}"), "the view 'experiments'"),
        (("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",), "the trigger 't'"),
        (("CREATE VIRTUAL TABLE words USING fts4(text)",), "the table 'words'"),
    ],
)
def test_a_store_that_would_run_what_a_stranger_wrote_is_asked_nothing(
    made: tuple[str, ...], said: str, theirs: Store
) -> None:
    edit(theirs, *made)
    for ask in (
        lambda: find_run("theirs", Store(theirs.root)),
        lambda: Store(theirs.root).folder("tests"),
        lambda: RunLogger("tests").log_text("text", "name"),
    ):
        with pytest.raises(ValueError, match=f"it has {said}, which is not MLflow's or Optuna's"):
            ask()


def test_a_store_that_is_a_link_is_not_followed(theirs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "sent" / "mlruns").mkdir(parents=True)
    (folder / "mlflow.db").symlink_to(theirs.root / "mlflow.db")
    with pytest.raises(ValueError, match=r"db is a link; if its target is your store, set MLFLOW_TRACKING_URI="):
        Store(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    assert Store(folder).root == theirs.root
