"""A store that someone sends brings a journal along: no verb sends a line of it, and its folder stays as it is."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from seqlab.cli import main
from seqlab.tracking import journal as journal_module
from seqlab.tracking.journal import Journal, replay_all
from seqlab.tracking.runs import find_run, search
from seqlab.tracking.state_folder import STATE, unsent
from seqlab.tracking.store import Store
from seqlab.tracking.writes import Sender
from tracking.fake_server import FakeServer
from tracking.tiny import content, make_run

SECRET = "a key of this user"


@pytest.fixture(autouse=True)
def _forgetful() -> None:
    """A process that has named no journal yet."""
    journal_module._told.clear()


@pytest.fixture(name="strays")
def _strays(store: Store, tmp_path: Path) -> Path:
    """The folder of a stranger's journal, which would send a file, write one, and change the store's runs."""
    run = make_run(store, "theirs", status="FINISHED")
    (tmp_path / "secret.txt").write_text(SECRET)
    folder = store.root / ".pending"
    folder.mkdir()
    writes = [
        {"op": "upload", "source": str(tmp_path / "secret.txt"), "folder": ""},
        {"op": "text", "text": "owned", "path": "../../../owned.txt"},
        {"op": "tags", "tags": {"owned": "yes"}},
        {"op": "status", "status": "FAILED", "time": 5},
    ]
    (folder / f"{run}.jsonl").write_text("".join(json.dumps(write) + "\n" for write in writes))
    created = {"op": "create", "experiment": "owned", "name": "owned", "tags": {}, "time": 5}
    (folder / f"{'f' * 32}.jsonl").write_text(json.dumps(created) + "\n")
    return folder


@pytest.mark.parametrize("command", [["compare"], ["promote", "theirs"], ["generate", "theirs"], ["resume", "theirs"]])
def test_a_journal_in_a_store_is_named_and_left_alone(
    command: list[str], strays: Path, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = content(strays)
    main(command)
    [said] = [record.message for record in caplog.records if ".pending" in record.message]
    assert said.startswith(f"{strays} is left alone, since it came with the store")
    assert content(strays) == before
    run = find_run("theirs", store)
    assert run.status == "FINISHED" and "owned" not in run.tags
    assert [found.name for found in search(store)] == ["theirs"]
    assert not [path for path in tmp_path.rglob("*.txt") if path.name != "secret.txt" and SECRET in path.read_text()]
    assert not list(tmp_path.rglob("owned*"))


def test_a_store_is_sent_what_this_user_kept_for_it_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(store)
    journal.create("tests", "ours", {}, later=True)
    assert journal.pending.parent == unsent(store) and not journal.pending.is_relative_to(store.root)
    assert stat.S_IMODE(unsent(store).stat().st_mode) == 0o700
    other = Store(tmp_path / "other")
    _ = other.client
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        assert len({unsent(some) for some in (store, other, Store(store.root))}) == 3
    assert replay_all(other) and search(other) == []
    assert replay_all(store) and [run.name for run in search(store)] == ["ours"]


def test_a_journal_sends_files_of_its_own_run_only(
    server: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (secret := tmp_path / "secret.txt").write_text(SECRET)
    store = Store()
    (artifacts := store.root / server.run_id / "artifacts").mkdir(parents=True)
    (link := artifacts / "link.txt").symlink_to(secret)
    (own := artifacts / "own.txt").write_text("its own")
    sender = Sender(store, server.run_id)
    for source in (secret, link, artifacts / "../../../secret.txt", "/etc/hosts"):
        with pytest.raises(ValueError, match="is not a file of the run, whose files on this machine are in"):
            sender.send({"op": "upload", "source": str(source), "folder": ""})
    sender.send({"op": "upload", "source": str(own), "folder": ""})
    journal = Journal(store, server.run_id)
    journal.write({"op": "upload", "source": str(secret), "folder": ""})
    assert not journal.pending.exists() and str(secret) in journal.pending.with_suffix(".refused").read_text()
    assert server.uploaded == ["own.txt"] and "secret.txt is not a file of the run" in caplog.text


def test_without_a_state_folder_a_run_is_created_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(STATE, str(tmp_path / "file" / "state"))
    journal = Journal(store)
    journal.create("tests", "at once", {}, later=True)
    journal.write({"op": "tags", "tags": {"a": "b"}})
    assert not journal.begin()
    assert find_run("at once", store).tags["a"] == "b"
