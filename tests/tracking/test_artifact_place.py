"""Places of a run's files as a store names them: in the store, or behind its server, or where the user allows it."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from seqlab.cli import main
from seqlab.tracking.artifact_place import ALLOWED, check_address
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.registry import register
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.store import Store, UnreachableError
from seqlab.tracking.writes import Sender
from tracking.fake_server import fake_server
from tracking.tiny import make_run

Say = Callable[[str | None], str]


@pytest.fixture(name="say")
def _say(store: Store) -> Say:
    """Makes the store say that its run's files are elsewhere; gives the run's id."""
    tags = {f"checkpoint.{which}": f"checkpoints/{which}.ckpt" for which in ("best", "last")}
    run = make_run(store, "theirs", {"val/loss": [(1, 2.0)]}, status="FINISHED", tags=tags)
    (store.root / "tests" / run / "artifacts").mkdir(parents=True)

    def say(uri: str | None) -> str:
        with closing(sqlite3.connect(store.root / "mlflow.db")) as database, database:
            database.execute("UPDATE runs SET artifact_uri = ?", (uri,))
            database.execute("UPDATE experiments SET artifact_location = ?", (uri,))
        return run

    return say


def outside(folder: Path) -> Path:
    """A folder outside of the store that a run could be made to write to."""
    (made := folder / "home" / "x" / "y").mkdir(parents=True)
    return made


ELSEWHERE = [
    "file:///etc",
    "/etc/a/b",
    "http://127.0.0.1:9/a/b/c",
    "s3://bucket/a",
    "",
    "x",
    "/a/b\0/c",
    f"/a/b/{'c' * 256}",
]


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_files_elsewhere_are_refused_by_name(uri: str, say: Say, store: Store) -> None:
    run = find_run(say(uri), store)
    with pytest.raises(ValueError, match=f"run {run.id} has its files in .*(outside of|no folder of) its store"):
        _ = run.artifacts


@pytest.mark.parametrize("way", ["file", "path", "up", "link"])
def test_nothing_is_written_there(way: str, say: Say, store: Store, tmp_path: Path) -> None:
    folder = outside(tmp_path)
    own = store.root / "tests" / (run_id := say("x")) / "artifacts"
    if way == "link":
        own.rmdir()
        own.symlink_to(folder)
    uris = {"file": f"file://{folder}", "path": str(folder), "link": str(own), "up": f"{own}/../../../../home/x/y"}
    say(uris[way])
    assert main(["compare"]) == 0, "the table does not need the files"
    for command in (["resume", run_id], ["generate", run_id], ["export", run_id, "--out", "bundle"]):
        assert main(command) == 2
    with pytest.raises(ValueError, match="outside of its store"):
        RunLogger("tests", run_id=run_id).log_text("text", "config.yaml")
    if way != "link":
        with pytest.raises(ValueError, match="outside of its store"):
            RunLogger("tests").log_text("text", "config.yaml")
    with pytest.raises(ValueError, match="outside of its store"):
        register(find_run(run_id, store), "fp32", "portable", "seal", lambda made: made.mkdir())
    assert not [*folder.iterdir(), *own.resolve().iterdir()]


def test_a_link_inside_a_run_is_not_followed(say: Say, store: Store, tmp_path: Path) -> None:
    folder, own = outside(tmp_path), store.root / "tests" / (run_id := say("x")) / "artifacts"
    say(str(own))
    (folder / "config.yaml").write_text("secret: 1")
    (own / "config.yaml").symlink_to(folder / "config.yaml")
    (own / "checkpoints").symlink_to(folder)
    with pytest.raises(ValueError, match="outside of its store"):
        _ = find_run(run_id, store).config
    with pytest.raises(ValueError, match="outside of its store"):
        _ = RunLogger("tests", run_id=run_id).checkpoint_dir
    (own / "models").symlink_to(folder)
    with pytest.raises(ValueError, match="outside of its store"):
        register(find_run(run_id, store), "fp32", "portable", "seal", lambda made: made.mkdir())
    assert [*folder.iterdir()] == [folder / "config.yaml"]


@pytest.mark.parametrize("there", ["no store", "no experiment", "an experiment"])
def test_an_experiments_folder_that_is_a_link_takes_no_run(
    there: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = outside(tmp_path)
    if there != "no store":
        RunLogger("tests" if there == "an experiment" else "others").finalize("success")
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new/mlflow.db")
        store = Store()
    experiment = store.root / "tests"
    experiment.parent.mkdir(exist_ok=True)
    shutil.rmtree(experiment, ignore_errors=True)
    experiment.symlink_to(folder)
    with pytest.raises(ValueError, match=r"of 'tests' has its files in .*outside of its store"):
        RunLogger("tests").log_text("text", "config.yaml")
    assert not [*folder.iterdir()]


def test_a_shared_disk_is_allowed_by_name(
    say: Say, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = outside(tmp_path)
    (folder / "config.yaml").write_text("a: 1")
    run_id = say(str(folder))
    monkeypatch.setenv(ALLOWED, str(tmp_path / "hom"))
    with pytest.raises(ValueError, match=f"where that is right, allow it: {ALLOWED}={folder}"):
        _ = find_run(run_id, store).config
    monkeypatch.setenv(ALLOWED, f"s3://bucket, {tmp_path / 'home'}")
    assert find_run(run_id, store).config == {"a": 1}


@pytest.mark.parametrize(
    ("address", "fits"),
    [
        ("mlflow-artifacts:/1/run/artifacts", True),
        ("mlflow-artifacts://host:5000/1/run", True),
        ("mlflow-artifacts://elsewhere/1/run", False),
        ("mlflow-artifacts:/1/../../run", False),
        ("file:///home/user", False),
        ("/home/user", False),
        ("https://elsewhere/files", False),
        ("s3://bucket/1", True),
        ("s3://bucket-of-another/1", False),
        ("", False),
    ],
)
def test_a_servers_files_are_behind_its_own_address(address: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "s3://bucket")
    if fits:
        check_address(address, "http://host:5000", "run")
        return
    with pytest.raises(ValueError, match=r"MLflow at http://host:5000 has the files of run run in .*, not behind"):
        check_address(address, "http://host:5000", "run")


def test_a_server_that_names_a_folder_of_this_machine_writes_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = outside(tmp_path)
    with fake_server() as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
        monkeypatch.setattr(type(server), "location", f"file://{folder}")
        store = Store()
        file = store.root / server.run_id / "artifacts" / "config.yaml"
        file.parent.mkdir(parents=True)
        file.write_text("a: 1")
        with pytest.raises(ValueError, match=f"has the files of run {server.run_id} in 'file://{folder}', not behind"):
            Sender(store, server.run_id).send({"op": "upload", "source": str(file), "folder": ""})
    assert not list(folder.iterdir())


def test_a_server_that_changes_its_answer_gets_and_gives_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is its own address; all others name a folder of this machine."""
    folder = outside(tmp_path)
    (folder / "config.yaml").write_text("secret: 1")
    with fake_server() as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
        answer = server.answer

        def with_its_run(what: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            return (200, {"runs": [server.run()]}) if what == "runs/search" else answer(what, asked)

        def change() -> None:
            answers = chain([""], repeat(f"file://{folder}"))
            monkeypatch.setattr(type(server), "location", property(lambda _: next(answers)))

        store = Store()
        file = store.root / server.run_id / "artifacts" / "own.txt"
        file.parent.mkdir(parents=True)
        file.write_text("own")
        change()
        Sender(store, server.run_id).send({"op": "upload", "source": str(file), "folder": ""})
        assert server.uploaded == ["own.txt"]
        server.files[f"1/{server.run_id}/artifacts/config.yaml"] = b"a: 1"
        change()
        monkeypatch.setattr(server, "answer", with_its_run)
        assert find_run(server.run_id, store).config == {"a": 1}
    assert [file.name for file in folder.iterdir()] == ["config.yaml"]


def test_a_redirect_to_another_server_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{other.server_address[1]}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{other.server_address[1]}")
        with pytest.raises(UnreachableError, match="302"):
            search(Store())
        other.shutdown()
    assert len(asked) == 1
