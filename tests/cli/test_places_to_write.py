"""A verb's place to write, `--out`: what is another's stays as it is, and is told before the verb works."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.conftest import Seqlab
from seqlab.cli import VERBS
from seqlab.cli.fit import LIGHTNING
from seqlab.cli.sweep import _check_storage
from seqlab.files.atomic import CannotWriteError, make_folder, write_atomically
from seqlab.files.html_page import made_by
from seqlab.files.place_to_write import file_to_write, files_to_write, folder_to_write
from seqlab.sweeps.queue import _check_file
from seqlab.tracking.store import Store

COMMANDS = {
    "compare": "",
    "predict first": "",
    "export nobody": "",
    "export nobody --format=html": "",
    "page nothing": "",
    "inspect nobody": "",
    "profile --config=nothing": "trace.json.gz",
    "parity --models nobody": "parity.json",
    "conformance": "conformance.md",
    "study notebook memory": "memory.ipynb",
}
"""A file that each writes into a folder; the others write one, or a folder that must be new. Most name a run or config
that is not there: the place is told first."""


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_verb_with_a_place_to_write_is_here() -> None:
    with_place = {verb.name for verb in VERBS if any("--out" in argument.names for argument in verb.arguments)}
    assert with_place | {"predict"} == {command.split()[0] for command in COMMANDS}
    assert "predict" in LIGHTNING, "whose options are Lightning's"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_verb_writes_over_what_is_anothers(command: str, fitted: Path, tmp_path: Path, beside_first: Seqlab) -> None:
    home, folder = fitted, tmp_path / "mine"
    bundle, run = folder / "bundle", folder / "runs" / f"{0:032x}"
    for one in (bundle, run / "artifacts", folder / "mlruns"):
        one.mkdir(parents=True)
    for file in ("bundle/manifest.json", "bundle/manifest.sha256", "notes", "data.jsonl", COMMANDS[command] or "empty"):
        (folder / file).write_text('{"text": "mine"}\n')
    places = {
        "": "--out is empty; name a",
        str(folder / "notes"): "",
        str(home / "mlruns" / "mlflow.db"): "",
        str(home / "mlruns" / "new"): f"is in the tracking store {home / 'mlruns'}",
        str(folder / "mlruns" / "new"): f"is in the tracking store {folder / 'mlruns'}",
        str(bundle / "new"): f"is in the bundle {bundle}",
        str(run / "artifacts" / "new"): f"is in the folder of run {run.name}",
        str(folder / "data.jsonl"): "",
        str(folder / "notes" / "new"): "",
        str(folder): "",
    }
    if not COMMANDS[command]:
        places["."] = "--out . is a folder"
    before = content(folder), content(home)
    for out, said in [*places.items()][: 4 if command.startswith("predict") else None]:  # each reads the checkpoint
        told = beside_first(*command.split(), f"--out={out}", code=2).stderr.splitlines()[-1]
        assert said in told and told.startswith("seqlab: ") and "nobody" not in told, told
    assert before == (content(folder), content(home))


@pytest.mark.slow
def test_what_a_verb_has_written_is_replaced(beside_first: Seqlab) -> None:
    for _ in range(2):
        beside_first("compare", "--out=again.html")
        beside_first("predict", "first", "--out=again.jsonl")
    (page := Path("again.html")).write_text(page.read_text().replace(made_by("compare"), made_by("study")))
    assert "was not written by this command" in beside_first("compare", "--out=again.html", code=2).stderr


def test_a_file_is_known_by_its_head(tmp_path: Path) -> None:
    trace, empty = tmp_path / "trace.json.gz", tmp_path / "empty"
    trace.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1}).encode()))
    empty.touch()
    marks = {trace.name: '"schemaVersion"'}
    assert files_to_write(str(tmp_path), marks) == tmp_path
    for content in (b"\x1f\x8b not packed", b"plain"):
        trace.write_bytes(content)
        with pytest.raises(ValueError, match=r"trace\.json\.gz exists and was not written by this command"):
            files_to_write(str(tmp_path), marks)
    assert file_to_write(str(empty), "mark") == empty
    with pytest.raises(ValueError, match="empty exists; give a new file"):
        file_to_write(str(empty))
    with pytest.raises(ValueError, match="there is no folder"):
        file_to_write(str(tmp_path / "none" / "file"))


def test_a_store_is_known_by_its_database_or_by_the_name_that_the_user_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who works in its folder may write beside it."""
    for name in ("theirs", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "theirs" / "mlflow.db").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mine' / 'runs.db'}")
    for name in ("theirs", "mine"):
        with pytest.raises(ValueError, match=f"is in the tracking store {tmp_path / name}"):
            file_to_write(str(tmp_path / name / "report.html"))
    monkeypatch.chdir(tmp_path / "theirs")
    assert file_to_write("report.html") == Path("report.html")
    for out in (".", "..", "/"):
        with pytest.raises(ValueError, match=f"--out {out} is a folder that exists; name a new one"):
            folder_to_write(out)


def test_a_place_is_made_when_it_is_written_and_refused_before(tmp_path: Path) -> None:
    assert files_to_write(str(tmp_path / "a" / "b"), {"file": ""}) == tmp_path / "a" / "b"
    assert not os.listdir(tmp_path)
    make_folder(tmp_path / "a" / "b")
    write_atomically(tmp_path / "a" / "b" / "file", "text")
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'a' / 'b' / 'file'} is a file; name a folder")):
        files_to_write(str(tmp_path / "a" / "b" / "file" / "c"), {})
    for refuses in (file_to_write, lambda out: files_to_write(out, {}), folder_to_write):
        with pytest.raises(CannotWriteError, match="while writing /proc/new"):  # root may not either
            refuses("/proc/new")


@pytest.mark.parametrize("tables", ["experiments, studies", "other"])
def test_a_storage_of_something_else_is_no_sweeps(tables: str, tmp_path: Path) -> None:
    file, diary = tmp_path / "some.db", tmp_path / "diary.db"
    _check_file(file)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE studies (name TEXT)")
        _check_file(file)
        database.execute("DROP TABLE studies")
        for table in tables.split(", "):
            database.execute(f"CREATE TABLE {table} (name TEXT)")
    with pytest.raises(ValueError, match="holds other tables than Optuna's"):
        _check_file(file)
    diary.write_text("my diary, which is no database" * 40)
    with pytest.raises(ValueError, match=r"--storage .*diary\.db cannot be opened: file is not a database"):
        _check_file(diary)


def test_a_sweeps_storage_is_beside_the_runs_or_where_the_user_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "mlruns")
    (tmp_path / "mlruns").mkdir()
    (bundle := tmp_path / "bundle").mkdir()
    for name in ("manifest.json", "manifest.sha256"):
        (bundle / name).touch()
    _check_storage(f"sqlite:///{tmp_path}/mlruns/sweeps.db", store, is_given=True)
    with pytest.raises(ValueError, match=f"--storage .* is in the bundle {bundle}"):
        _check_storage(f"sqlite:///{bundle}/sweeps.db", store, is_given=True)
    (link := tmp_path / "mlruns" / "sweeps.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(ValueError, match=r"sweeps\.db is a link; if its target is your storage, name it"):
        _check_storage(f"sqlite:///{link}", store, is_given=False)
    _check_storage(f"sqlite:///{link}", store, is_given=True)
