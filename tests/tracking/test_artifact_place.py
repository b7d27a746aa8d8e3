"""Places of a run's files as a store names them: in the store, or behind its server, or where the user allows it."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from seqlab.cli import main
from seqlab.tracking.artifact_place import ALLOWED, check_address
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.registry import register
from seqlab.tracking.runs import find_run
from seqlab.tracking.store import Store
from seqlab.tracking.writes import Sender
from tracking.fake_server import FakeServer
from tracking.tiny import edit, make_run


@pytest.fixture(scope="module")
def run_id(shared: Store) -> str:
    tags = {f"checkpoint.{which}": f"checkpoints/{which}.ckpt" for which in ("best", "last")}
    run_id = make_run(shared, "theirs", {"val/loss": [(1, 2.0)]}, status="FINISHED", tags=tags)
    (shared.root / "tests" / run_id / "artifacts").mkdir(parents=True)
    return run_id


@pytest.fixture
def theirs(run_id: str, shared: Store, tmp_path: Path) -> Store:
    return Store(shutil.copytree(shared.root, tmp_path / "mlruns"))


@pytest.fixture
def own(run_id: str, theirs: Store) -> Path:
    """The folder of its run's files."""
    return theirs.root / "tests" / run_id / "artifacts"


def say(store: Store, uri: Path | str) -> None:
    """Makes the store say that its run's files are elsewhere."""
    for column in ("runs SET artifact_uri", "experiments SET artifact_location"):
        edit(store, f"UPDATE {column} = ?", values=[str(uri)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder outside of the store that a run could be made to write to."""
    (made := tmp_path / "home" / "x" / "y").mkdir(parents=True)
    return made


ELSEWHERE = ["file:///etc", "/etc/a/b", "http://127.0.0.1:9/a/b/c", "s3://bucket/a", "", "x", "/a/b\0/c"]
ELSEWHERE += [f"/a/b/{'c' * 256}"]


def refused() -> Any:
    return pytest.raises(ValueError, match="outside its store")


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_files_elsewhere_are_refused_by_name(uri: str, run_id: str, theirs: Store) -> None:
    say(theirs, uri)
    with pytest.raises(ValueError, match=f"run {run_id} has its files in .*(outside|not a folder of) its store"):
        _ = find_run(run_id, theirs).artifacts


@pytest.mark.parametrize("way", ["file", "path", "up", "link"])
def test_nothing_is_written_there(way: str, run_id: str, own: Path, theirs: Store, folder: Path) -> None:
    if way == "link":
        own.rmdir()
        own.symlink_to(folder)
    uris = {"file": f"file://{folder}", "path": str(folder), "link": str(own), "up": f"{own}/../../../../home/x/y"}
    say(theirs, uris[way])
    assert main(["compare"]) == 0, "the table does not need the files"
    for command in (["resume", run_id], ["generate", run_id], ["export", run_id, "--out", "bundle"]):
        assert main(command) == 2
    with refused():
        RunLogger("tests", run_id=run_id).log_text("text", "config.yaml")
    if way != "link":
        with refused():
            RunLogger("tests").log_text("text", "config.yaml")
    with refused():
        register(find_run(run_id, theirs), "fp32", "portable", "seal", lambda made: made.mkdir())
    assert not [*folder.iterdir(), *own.resolve().iterdir()]


def test_a_link_inside_a_run_is_not_followed(run_id: str, own: Path, theirs: Store, folder: Path) -> None:
    say(theirs, own)
    (folder / "config.yaml").write_text("secret: 1")
    (own / "config.yaml").symlink_to(folder / "config.yaml")
    (own / "checkpoints").symlink_to(folder)
    with refused():
        _ = find_run(run_id, theirs).config
    with refused():
        _ = RunLogger("tests", run_id=run_id).checkpoint_dir
    (own / "models").symlink_to(folder)
    with refused():
        register(find_run(run_id, theirs), "fp32", "portable", "seal", lambda made: made.mkdir())
    assert [*folder.iterdir()] == [folder / "config.yaml"]


@pytest.mark.parametrize("begun", [None, "others", "tests"])
def test_an_experiments_folder_that_is_a_link_takes_no_run(begun: str | None, store: Store, folder: Path) -> None:
    """In a store that is not there yet, in one without the experiment, and in one with it."""
    if begun is None:
        (store.root / "mlflow.db").unlink()
    else:
        RunLogger(begun).finalize("success")
    shutil.rmtree(experiment := store.root / "tests", ignore_errors=True)
    experiment.symlink_to(folder)
    with pytest.raises(ValueError, match=r"of 'tests' has its files in .*outside its store"):
        RunLogger("tests").log_text("text", "config.yaml")
    assert not [*folder.iterdir()]


def test_a_shared_disk_is_allowed_by_name(
    run_id: str, theirs: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.yaml").write_text("a: 1")
    say(theirs, folder)
    place = folder.parents[1]
    monkeypatch.setenv(ALLOWED, str(place)[:-1])
    with pytest.raises(ValueError, match=f"to allow this, set {ALLOWED}={folder}"):
        _ = find_run(run_id, theirs).config
    monkeypatch.setenv(ALLOWED, f"s3://bucket, {place}")
    assert find_run(run_id, theirs).config == {"a": 1}


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
    why = r"MLflow at http://host:5000 puts the files of run run in .*, outside its own address"
    with nullcontext() if fits else pytest.raises(ValueError, match=why):
        check_address(address, "http://host:5000", "run")


def upload(server: FakeServer, name: str) -> None:
    """Sends a file of the server's run."""
    store = Store()
    file = store.root / server.run_id / "artifacts" / name
    file.parent.mkdir(parents=True)
    file.write_text("a: 1")
    Sender(store, server.run_id).send({"op": "upload", "source": str(file), "folder": ""})


def test_a_server_that_names_a_folder_of_this_machine_writes_nothing_there(
    server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeServer, "location", f"file://{folder}")
    with pytest.raises(
        ValueError, match=f"puts the files of run {server.run_id} in 'file://{folder}', outside its own address"
    ):
        upload(server, "config.yaml")
    assert not list(folder.iterdir())


def test_a_server_that_changes_its_answer_gets_and_gives_nothing_elsewhere(
    server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is its own address; all others name a folder of this machine."""
    (folder / "config.yaml").write_text("secret: 1")
    answer = server.answer

    def with_its_run(what: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return (200, {"runs": [server.run()]}) if what == "runs/search" else answer(what, asked)

    def change() -> None:
        answers = chain([""], repeat(f"file://{folder}"))
        monkeypatch.setattr(FakeServer, "location", property(lambda _: next(answers)))

    change()
    upload(server, "own.txt")
    assert server.uploaded == ["own.txt"]
    server.files[f"1/{server.run_id}/artifacts/config.yaml"] = b"a: 1"
    change()
    monkeypatch.setattr(server, "answer", with_its_run)
    assert find_run(server.run_id).config == {"a": 1}
    assert [file.name for file in folder.iterdir()] == ["config.yaml"]
