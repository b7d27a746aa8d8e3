from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from seqlab.callbacks.run_tracker import RunTracker
from seqlab.cli import main
from seqlab.tracking.journal import Journal, replay_all
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.runs import find_run, search, settle
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import Store, UnreachableError
from seqlab.tracking.writes import Sender, Write
from servers import free_port
from tracking.tiny import fit, make_run

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


class Outage:
    """A store that can be made not to answer, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.down = False
        self.now = 0.0
        self.attempts = 0
        calls = Store.calls

        @contextmanager
        def failing(store: Store, **how: bool) -> Iterator[MlflowClient]:
            self.attempts += 1
            if self.down:
                raise UnreachableError("the line is dead")
            with calls(store, **how) as client:
                yield client

        monkeypatch.setattr(Store, "calls", failing)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


def created(store: Store) -> Journal:
    journal = Journal(store)
    journal.create("tests", "one", {})
    return journal


def point(step: int) -> dict[str, Any]:
    return {"op": "points", "points": [["x", step, 0, step]]}


def steps(store: Store, run_id: str) -> list[int]:
    return [step for step, _ in find_run(run_id, store).history("x")]


def test_what_an_outage_kept_is_sent_in_order_when_the_store_is_back(
    store: Store, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    journal = created(store)
    journal.write(point(0))
    outage.down = True
    for step in (1, 2, 3):
        journal.write(point(step))
    outage.down = False
    outage.now += 29
    journal.write(point(4))
    assert [json.loads(line)["points"][0][-1] for line in journal.pending.read_text().splitlines()] == [1, 2, 3, 4]
    outage.now += 2
    journal.write(point(5))
    assert not journal.pending.exists()
    assert steps(store, journal.run_id) == [0, 1, 2, 3, 4, 5]
    assert len(caplog.records) == 1, "one warning an outage"


def test_attempts_grow_rarer_while_the_store_is_down(store: Store, outage: Outage) -> None:
    journal = created(store)
    outage.down, outage.attempts = True, 0
    for step in range(360):
        outage.now += 10
        journal.write(point(step))
    assert outage.attempts <= 3600 / 600 + 6
    assert len(journal.pending.read_text().splitlines()) == 360


def test_a_replay_that_is_cut_off_goes_on_and_repeats_nothing(
    store: Store, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = created(store)
    outage.down = True
    for step in range(6):
        journal.write(point(step))
    kept = journal.pending.read_text()
    outage.down = False
    send = Sender.send

    def dies_at_three(sender: Any, write: dict[str, Any]) -> None:
        if write["points"][0][-1] == 3:
            raise UnreachableError("again")
        send(sender, write)

    with monkeypatch.context() as patch:
        patch.setattr(Sender, "send", dies_at_three)
        assert not replay_all(store)
    assert len(journal.pending.read_text().splitlines()) == 3
    journal.pending.write_text(kept + '{"op": "points", "poi')  # as if killed before it was rewritten, in a write
    assert replay_all(store)
    assert steps(store, journal.run_id) == list(range(6))


def test_a_refusal_is_a_warning_and_holds_nothing_up(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    journal = created(store)
    journal.write({"op": "tags", "tags": {"": "no name"}})
    journal.write(point(1))
    assert steps(store, journal.run_id) == [1]
    assert "MLflow refuses tags" in caplog.text


def test_a_disk_that_is_full_is_a_warning_too(
    store: Store, outage: Outage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = created(store)
    outage.down = True
    monkeypatch.setattr(Path, "open", Mock(side_effect=OSError("no space left")))
    journal.write(point(1))
    assert f"points of run {journal.run_id} is lost: no space left" in caplog.text


@pytest.fixture
def dead_server(monkeypatch: pytest.MonkeyPatch) -> str:
    """A port of this machine on which nothing listens."""
    uri = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


def test_a_dead_server_neither_stops_a_fit_nor_loses_any_of_it(
    dead_server: str, root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnreachableError, match=f"MLflow at {dead_server} does not answer"):
        search(Store())
    logger = RunLogger("remote", name="offline")
    with caplog.at_level(logging.WARNING, "seqlab"):
        fit(logger, [RunTracker({"lr": 0.1})])
    [said] = [record.message for record in caplog.records if record.name == "seqlab"]
    assert dead_server in said and "are kept" in said
    assert logger.checkpoint_dir == root / str(logger.run_id) / "artifacts" / "checkpoints"
    assert sorted(path.name for path in logger.checkpoint_dir.iterdir()) == ["best.ckpt", "last.ckpt"]

    # A write does not say where to, but is kept for one store: by hand it makes the same run of another.
    kept = unsent(logger.store) / f"{logger.run_id}.jsonl"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert search(Store()) == [] and replay_all(Store()) and kept.exists()
    unsent(Store()).mkdir(parents=True)
    kept.rename(unsent(Store()) / kept.name)
    settle(Store())
    run = find_run("offline")
    assert (run.experiment, run.status, run.params, run.config) == ("remote", "FINISHED", {"lr": "0.1"}, {"lr": 0.1})
    assert [step for step, _ in run.history("train/loss")] == list(range(1, 16, 2))
    assert run.best_checkpoint is not None and run.best_checkpoint.name == "best.ckpt"
    assert find_run(str(logger.run_id)).id == run.id, "a checkpoint knows the run by its first id"


LINES = {
    "no object": b"[1, 2]\n",
    "a number": b"7\n",
    "no JSON": b"{not json\n",
    "nothing": b"\n",
    "no op": b"{}\n",
    "an op that is none": b'{"op": 3}\n',
    "too deep": b"[" * 100_000 + b"\n",
    "no UTF-8": b'{"op": "tags", "tags": {"a": "\xff"}}\n',
    "a number too long": b"9" * 10_000 + b"\n",
}

PROMOTE = ["promote", "one"]
"""A command that sends what was kept, and then has nothing to promote."""


@pytest.fixture(name="journal")
def _journal(store: Store) -> Journal:
    """One of a run that is there."""
    return Journal(store, make_run(store, "one", {"val/loss": [(0, 1.0)]}))


def test_lines_that_are_no_writes_are_told_and_set_aside_and_the_others_sent(
    journal: Journal, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    journal.keep({"op": "tags", "tags": {"first": "1"}})
    for number, line in enumerate(LINES.values(), start=2):
        with journal.pending.open("ab") as file:
            file.write(line)
        journal.keep({"op": "tags", "tags": {str(number): "2"}})
    assert main(PROMOTE) == 2
    told = [record.getMessage() for record in caplog.records if "is not a write of a run" in record.getMessage()]
    for number, said in zip(range(2, 2 * len(LINES) + 1, 2), told, strict=True):
        assert said.startswith(f"{journal.pending}, line {number} is not a write of a run and was set aside in ")
    assert journal.pending.with_suffix(".refused").read_bytes() == b"".join(LINES.values())
    assert not journal.pending.exists()
    assert {"first", *map(str, range(2, 2 + len(LINES)))} <= find_run("one", store).tags.keys()


def test_an_object_that_is_no_write_is_set_aside(journal: Journal) -> None:
    writes: list[Write] = [{"op": "points"}, {"op": "points", "points": 7}, {"op": "tags", "tags": [1]}]
    for write in writes:
        journal.keep(write)
    assert main(PROMOTE) == 2
    aside = journal.pending.with_suffix(".refused").read_text().splitlines()
    assert [json.loads(line) for line in aside] == writes
    assert not journal.pending.exists()
