from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from lightning.pytorch.utilities import rank_zero_only

from seqlab.tracking.journal import Journal
from seqlab.tracking.logger import FEWEST_STEPS, MOST_STEPS, RunLogger
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.runs import TrackedRun, find_run, search, settle
from seqlab.tracking.store import Store
from seqlab.tracking.writes import Sender


def stored(logger: RunLogger) -> TrackedRun:
    assert logger.run_id is not None
    settle(logger.store)
    return find_run(logger.run_id, logger.store)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The steps of the points in each call."""
    calls: list[list[int]] = []
    write = Journal.write

    def counted(self: Journal, what: dict[str, Any]) -> None:
        if what["op"] == "points":
            calls.append([point[-1] for point in what["points"]])
        write(self, what)

    monkeypatch.setattr(Journal, "write", counted)
    return calls


def test_points_are_sent_in_batches_and_none_is_lost(root: Path, calls: list[list[int]]) -> None:
    logger = RunLogger()
    for step in range(173):
        logger.log_metrics({"train/loss": step / 4}, step)
    logger.finalize("success")
    spans = [steps[-1] - steps[0] + 1 for steps in calls]
    assert all(FEWEST_STEPS <= span <= MOST_STEPS + 1 for span in spans[:-1])
    assert len(calls) <= 173 / FEWEST_STEPS
    assert stored(logger).history("train/loss") == [(step, step / 4) for step in range(173)]


def test_long_steps_are_sent_after_ten(root: Path, calls: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    logger = RunLogger()
    monkeypatch.setattr("seqlab.tracking.logger.SECONDS", 0.0)
    for step in range(1, 32):
        logger.log_metrics({"x": 0}, step)
    assert [steps[-1] for steps in calls] == [10, 20, 30]


def test_a_run_that_is_continued_logs_no_step_twice_and_misses_none(root: Path) -> None:
    first = RunLogger(name="cut off")
    for step in range(60):
        first.log_metrics({"train/loss": step, "lr": 1}, step)
    first.flush()
    second = RunLogger(run_id=first.run_id)
    for step in range(40, 100):
        second.log_metrics({"train/loss": -1 if step < 60 else step, "val/loss": step}, step)
    second.finalize("success")
    run = stored(second)
    assert (run.id, run.name) == (first.run_id, "cut off")
    assert run.history("train/loss") == [(step, step) for step in range(100)]
    assert run.history("val/loss") == [(step, step) for step in range(40, 100)]
    assert run.history("lr") == [(step, 1) for step in range(60)]


def test_a_run_that_is_continued_is_running_again_in_this_process(root: Path) -> None:
    first = RunLogger()
    first.log_tags({"process.id": "1", "process.start": "0", "failure": "out of luck"})
    first.finalize("failed")
    assert stored(first).status == "FAILED"
    second = RunLogger(run_id=first.run_id)
    assert stored(second).status == "RUNNING"
    assert process_tags().items() <= stored(second).tags.items()
    assert "failure" not in stored(second).tags


def test_a_changed_parameter_keeps_its_first_value_and_becomes_a_tag(root: Path) -> None:
    first = RunLogger()
    first.log_hyperparams({"trainer": {"max_steps": 10}, "lr": 0.1, "ckpt_path": None})
    first.finalize("success")
    second = RunLogger(run_id=first.run_id)
    second.log_hyperparams({"trainer": {"max_steps": 20}, "lr": 0.1, "ckpt_path": "last.ckpt", "new": None})
    run = stored(second)
    assert run.params == {"trainer.max_steps": "10", "lr": "0.1", "ckpt_path": "null", "new": "null"}
    assert run.tags["seqlab.changed_params"] == "trainer.max_steps: 10 -> 20"


def test_values_of_any_name_length_and_number_are_stored(root: Path) -> None:
    logger = RunLogger()
    logger.log_hyperparams({f"p{i}": "v" for i in range(250)} | {"long": "x" * 5999, "longer": "y" * 9999})
    logger.log_metrics({"a(b)": 1.0, "nan": float("nan"), "inf": float("inf"), "ok/x_y.z-1": 2})
    logger.finalize("success")
    run = stored(logger)
    assert len(run.params) == 252 and run.params["long"] == "x" * 5999
    assert run.params["longer"].endswith("[cut from 9999 characters, see config.yaml]")
    assert run.metrics == {"a_b_": 1, "nan": pytest.approx(math.nan, nan_ok=True), "inf": math.inf, "ok/x_y.z-1": 2}


def test_what_cannot_be_logged_to_is_refused(store: Store) -> None:
    with store.calls() as client:
        client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(ValueError, match=f"run {'0123456789abcdef' * 2} cannot be continued"):
        _ = RunLogger(run_id="0123456789abcdef" * 2).run_id
    with pytest.raises(ValueError, match="experiment 'gone' is deleted"):
        _ = RunLogger("gone").run_id
    with pytest.raises(ValueError, match="MLflow refuses the run"):
        Journal(store).create("x" * 501, None, {})
    for name in ("", "x" * 501):
        with pytest.raises(ValueError, match=f"experiment has {len(name)} characters; accepted: 1 to 500"):
            RunLogger(name)


def test_a_fit_that_is_gone_before_its_first_step_left_its_run(root: Path) -> None:
    logger = RunLogger(name="early")
    logger.log_tags({"process.start": "1.0"})
    logger.log_metrics({"x": 1}, 3)
    logger.flush()
    assert search(logger.store) == []
    settle(logger.store)
    run = find_run("early")
    assert (run.id, run.artifacts, run.status) == (logger.run_id, logger.artifacts, "KILLED")
    logger.begin()
    logger.log_metrics({"x": 2}, 4)
    logger.finalize("success")
    assert stored(logger).history("x") == [(3, 1), (4, 2)]


def test_a_run_that_cannot_be_created_is_kept_for_the_next_command(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = RunLogger(name="kept")
    with monkeypatch.context() as patch:
        patch.setattr(Sender, "send", Mock(side_effect=OSError("no space left")))
        with pytest.raises(OSError, match="no space left"):
            logger.begin()
        logger.log_metrics({"x": 2}, 4)
        logger.finalize("failed")
    assert stored(logger).status == "FAILED"
    assert stored(logger).history("x") == [(4, 2)]


def test_mlflows_client_is_there_when_it_is_used(root: Path) -> None:
    logger = RunLogger()
    client = logger.experiment
    assert search(logger.store) == []
    client.set_tag(logger.run_id, "a", "b")
    assert stored(logger).tags["a"] == "b"


def test_other_ranks_and_loggers_of_nothing_make_no_run_and_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunLogger().finalize("success")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = RunLogger()
    logger.log_metrics({"x": 1}, 0)
    logger.log_hyperparams({"a": 1})
    logger.log_text("text", "file.txt")
    logger.finalize("success")
    assert {logger.run_id, logger.artifacts, logger.checkpoint_dir, logger.save_dir} == {None}
    assert not (tmp_path / "mlruns").exists()
