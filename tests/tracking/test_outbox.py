"""A server that is slow, or turns a fit away: the fit goes on as if it were not there, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from filelock import FileLock
from lightning.pytorch.callbacks import Callback

from seqlab.callbacks.run_tracker import RunTracker
from seqlab.tracking import outbox as outbox_module
from seqlab.tracking.aside import SENDING
from seqlab.tracking.journal import Journal, replay_all
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.runs import _tracked
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import Store, UnreachableError
from seqlab.tracking.writes import dataset_of
from tracking.fake_server import FakeServer
from tracking.tiny import assert_same, fit

EVERY_OTHER = list(range(1, 16, 2))


def pending(server: FakeServer, suffix: str = "jsonl") -> Path:
    return unsent(Store()) / f"{server.run_id}.{suffix}"


def steps(server: FakeServer) -> list[int]:
    return [step for step, _ in server.points["train/loss"]]


@pytest.mark.parametrize(
    ("status", "renew"),
    [
        *((status, "MLFLOW_TRACKING_URI is the address") for status in (400, 404)),
        *((status, "MLFLOW_TRACKING_TOKEN") for status in (401, 403)),
    ],
)
def test_what_is_turned_away_is_kept_and_the_message_says_what_to_renew(
    server: FakeServer, caplog: pytest.LogCaptureFixture, status: int, renew: str
) -> None:
    server.status = status
    logger = RunLogger("remote")
    for step in range(2):
        logger.log_metrics({"train/loss": step}, step)
        logger.flush()
    logger.log_text("a: 1", "config.yaml")
    logger.finalize("success")
    assert server.points == {} and server.uploaded == []
    (said,) = [record.message for record in caplog.records if record.name == "seqlab"]
    assert all(words in said for words in ("rejects the request", f"are kept in {pending(server)}", renew))

    server.status = 200
    assert replay_all(Store())
    assert not pending(server).exists() and not pending(server, "refused").exists()
    assert (server.points, server.run_status) == ({"train/loss": [(0, 0.0), (1, 1.0)]}, "FINISHED")
    assert server.uploaded == ["config.yaml"]


def test_only_what_the_server_refuses_for_what_it_says_is_set_aside(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    logger = RunLogger("remote")
    server.refused = "bad"
    for step in range(4):
        logger.log_metrics({"train/loss": step / 2, "bad": 1.0, "lr": 0.1}, step)
    logger.finalize("success")
    assert not pending(server).exists()
    assert server.points == {"train/loss": [(k, k / 2) for k in range(4)], "lr": [(k, 0.1) for k in range(4)]}
    aside = [json.loads(line)["points"] for line in pending(server, "refused").read_text().splitlines()]
    assert [(point[0], point[3]) for (point,) in aside] == [("bad", k) for k in range(4)]
    assert f"refuses points of run {server.run_id}, which was set aside in {pending(server, 'refused')}" in caplog.text


def test_a_slow_server_is_not_waited_for_while_training_and_changes_nothing(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqlab.tracking.system.SECONDS", 0.0)
    server.answers.clear()  # none at all while it trains
    at_the_end: list[int] = []

    class End(Callback):
        def on_train_end(self, *args: Any) -> None:
            at_the_end.extend((len(server.points), len(pending(server).read_text().splitlines())))
            server.answers.set()

    _, logged = fit(RunLogger("remote"), [RunTracker({"lr": 0.1}), End()])
    taken, kept = at_the_end
    assert taken == 0 and kept > 5
    assert (steps(server), server.run_status, server.params) == (EVERY_OTHER, "FINISHED", {"lr": "0.1"})
    assert {"config.yaml", "best.ckpt", "last.ckpt"} <= set(server.uploaded) and not pending(server).exists()
    _, unlogged = fit(False)
    assert_same(logged, unlogged)


@patch.multiple(outbox_module, PAUSE=0.0, MOST_SECONDS_AT_THE_END=0.0)
def test_the_end_waits_for_a_slow_server_no_longer_than_its_limit(
    server: FakeServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = RunLogger("remote")
    server.answers.clear()
    logger.log_metrics({"train/loss": 1.0}, 0)
    logger.finalize("success")
    assert f"sending the writes that {server.address} lacks" in capsys.readouterr().err
    assert f"the writes that MLflow lacks are in {pending(server)}; the next command sends them" in caplog.text
    server.answers.set()


def test_sending_draws_no_random_number(server: FakeServer) -> None:
    """In its own thread nothing puts the generators back, since training uses them meanwhile."""
    file = Store().root / server.run_id / "artifacts" / "file"
    file.parent.mkdir(parents=True)
    file.write_text("content")
    journal = Journal(Store())
    journal.create("remote", None, {})
    writes: list[dict[str, Any]] = [
        {"op": "points", "points": [["x", 1.0, 0, 0]]},
        {"op": "params", "params": {"a": "b"}},
        {"op": "tags", "tags": {"a": "b"}},
        {"op": "dataset", "dataset": dataset_of({"name": "n", "digest": "d"})},
        {"op": "upload", "source": str(file), "folder": ""},
        {"op": "status", "status": "RUNNING", "time": None},
        {"op": "status", "status": "FINISHED", "time": 1},
    ]

    def drawn() -> Any:
        return random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()

    for server.status in (200, 500, 401):
        for write in writes:
            before = drawn()
            with patch.object(SENDING, "alone", True, create=True), contextlib.suppress(UnreachableError):
                journal._sender.send(write)
            assert drawn() == before, write


def wait_of_none(lock: FileLock, acquire: Any = FileLock.acquire) -> Any:
    assert lock.timeout == 0
    return acquire(lock)


def test_another_process_that_sends_is_not_joined(server: FakeServer) -> None:
    journal = Journal(Store(), server.run_id)
    journal.keep({"op": "points", "points": [["x", 1.0, 0, 0]]})
    with FileLock(journal.pending.with_suffix(".lock")), patch.object(FileLock, "acquire", wait_of_none):
        assert not replay_all(Store()) and not journal.replay()
    assert server.points == {}
    assert replay_all(Store())
    assert server.points == {"x": [(0, 1.0)]}


def test_shards_are_uploaded_before_the_checkpoint_that_names_them_and_fetched_with_it(server: FakeServer) -> None:
    logger = RunLogger("remote")
    assert logger.checkpoint_dir is not None
    shards = logger.checkpoint_dir / "last.ckpt.shards-1"
    shards.mkdir(parents=True)
    (shards / "__0_0.distcp").write_text("numbers")
    (logger.checkpoint_dir / "last.ckpt").write_text("where they are")
    logger.log_tags({"checkpoint.last": "checkpoints/last.ckpt"})
    logger.finalize("success")
    assert server.uploaded == ["__0_0.distcp", "last.ckpt"]
    there = Store("another machine")
    with there.calls() as client:
        run = _tracked(client.get_run(server.run_id), "remote", there)
    fetched = run.last_checkpoint
    assert fetched is not None and fetched.is_relative_to(Path("another machine").resolve())
    assert fetched.read_text() == "where they are"
    assert (fetched.parent / shards.name / "__0_0.distcp").read_text() == "numbers"
