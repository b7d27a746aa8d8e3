from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from seqlab.batch import TokenBatch
from seqlab.callbacks.run_tracker import DivergedError, RunTracker
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.params import config_hash
from seqlab.tracking.provenance import description, git, provenance
from seqlab.tracking.runs import TrackedRun, find_run, search
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import Store
from tracking.test_speed import Clock
from tracking.tiny import (
    BATCH_SIZE,
    BATCHES,
    IGNORED_A_WINDOW,
    SEQ_LEN,
    TinyTask,
    fit,
)

CONFIG = {"model": {"lr": 0.1, "names": ["a", None]}, "trainer": {"max_epochs": 2}, "run_name": "tiny"}
TOKENS = 2 * BATCHES * BATCH_SIZE * (SEQ_LEN - IGNORED_A_WINDOW)


class Fails(TinyTask):
    """Does something at the fifth step."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__()
        self.action = action

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * self.action() if batch_idx == 4 else loss


def failed_run(root: Path, action: Callable[[], Any], error: type[BaseException]) -> TrackedRun:
    logger = RunLogger()
    with pytest.raises(error):
        fit(logger, [RunTracker(CONFIG)], task=Fails(action))
    assert logger.run_id is not None
    return find_run(logger.run_id, Store(root))


def raise_(error: BaseException) -> None:
    raise error


@pytest.fixture
def run(root: Path) -> TrackedRun:
    """A fit that went well, in the default store."""
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "--allow-empty", "-m", "m"],
        check=True,
    )
    logger = RunLogger("quickstart", name="tiny")
    fit(logger, [RunTracker(CONFIG)])
    return find_run("tiny")


def test_a_fit_stores_all_of_itself(run: TrackedRun, root: Path) -> None:
    assert (run.status, run.experiment) == ("FINISHED", "quickstart")

    assert run.config == CONFIG
    assert run.params == {
        "model.lr": "0.1",
        "model.names.0": "a",
        "model.names.1": "null",
        "trainer.max_epochs": "2",
        "run_name": "tiny",
    }
    assert run.tags["config_hash"] == config_hash(CONFIG)

    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert run.tags["git.commit"] == head
    assert run.tags["git.dirty"] == "false"
    assert run.tags["package.torch"] == torch.__version__
    assert run.tags["hardware.cores"] == str(os.cpu_count())
    assert float(run.tags["hardware.memory_gb"]) > 0
    assert run.tags["dataset"] == "tiny dddddddddddd"
    packages = run.artifact("packages.txt")
    assert packages is not None
    assert f"lightning=={run.tags['package.lightning']}\n" in packages.read_text()

    metrics = run.metrics
    assert metrics["num_params"] == 11 * 8 + 8 * 11 + 11
    assert metrics["state_size"] == 3 * SEQ_LEN
    assert metrics["num_tokens"] == TOKENS
    assert metrics["num_devices"] == 1
    assert metrics["lr"] == 0.1
    assert metrics["perf/tokens_per_s"] > 0
    assert metrics["perf/peak_memory_mb"] > 50
    assert 0 < metrics["perf/train_seconds"] < metrics["perf/wall_seconds"]
    assert [step for step, _ in run.history("train/loss")] == list(range(1, 16, 2))
    assert [step for step, _ in run.history("num_tokens")] == list(range(1, 16, 2))
    assert [step for step, _ in run.history("val/loss")] == [7, 15]

    checkpoints = root / "quickstart" / run.id / "artifacts" / "checkpoints"
    assert run.best_checkpoint == checkpoints / "best.ckpt"
    assert run.last_checkpoint == checkpoints / "last.ckpt"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["best.ckpt", "last.ckpt"]
    left = [path.name for path in root.iterdir() if path.suffix != ".lock"]
    assert sorted(left) == ["mlflow.db", "quickstart"]
    assert [path.name for path in unsent(run.store).iterdir()] == [".lock"]


def test_the_data_is_an_mlflow_dataset(run: TrackedRun) -> None:
    with run.store.calls() as client:
        (data,) = client.get_run(run.id).inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("tiny", "d" * 36)
    assert '"tokens": 128' in data.dataset.profile
    assert '"digest": "' + "d" * 64 in data.dataset.profile


def test_the_use_of_the_machine_is_sampled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.tracking.system.SECONDS", 0.0)
    fit(RunLogger(name="sampled"), [RunTracker()])
    run = find_run("sampled")
    assert 0 <= run.metrics["system/cpu_utilization_percentage"] <= 100
    assert 0 < run.metrics["system/system_memory_usage_percentage"] < 100
    assert [step for step, _ in run.history("system/disk_usage_megabytes")] == list(range(1, 16, 2))


def test_creating_the_run_is_not_timed_as_training(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("seqlab.callbacks.speed.time", clock)
    begin = RunLogger.begin

    def slow(logger: RunLogger) -> None:
        clock.now += 100
        begin(logger)

    monkeypatch.setattr(RunLogger, "begin", slow)
    fit(RunLogger(name="slow"), [RunTracker()], max_epochs=1)
    assert clock.now == 200
    assert find_run("slow").metrics["perf/train_seconds"] == 0


def test_uncommitted_changes_are_noted(root: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    Path("code.py").write_text("a = 1\n")
    subprocess.run(["git", "add", "code.py"], check=True)
    commit = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-q", "-m", "m"]
    subprocess.run(commit, check=True)
    Path("code.py").write_text("a = 2\n")
    logger = RunLogger(name="dirty")
    fit(logger, [RunTracker()], max_epochs=1)
    assert find_run("dirty").tags["git.dirty"] == "true"


def test_a_logged_fit_equals_an_unlogged_one_bit_by_bit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.tracking.system.SECONDS", 0.0)
    _, logged = fit(RunLogger(), [RunTracker(CONFIG)])
    _, unlogged = fit(False)
    assert isinstance(logged, TinyTask) and isinstance(unlogged, TinyTask)
    assert logged.losses == unlogged.losses
    for name, parameter in logged.state_dict().items():
        assert torch.equal(parameter, unlogged.state_dict()[name]), name


def test_a_nan_loss_stops_the_fit_and_fails_the_run_with_the_reason(root: Path) -> None:
    run = failed_run(root, lambda: float("nan"), DivergedError)
    assert run.status == "FAILED"
    assert "the training loss is nan at step 5 (epoch 0)" in run.tags["failure"]
    assert run.history("train/loss")[-1][0] == 3


def test_an_infinite_loss_too(root: Path) -> None:
    assert "the training loss is inf" in failed_run(root, lambda: float("inf"), DivergedError).tags["failure"]


def test_an_error_fails_the_run_and_is_stored(root: Path) -> None:
    run = failed_run(root, lambda: raise_(RuntimeError("out of luck")), RuntimeError)
    assert (run.status, run.tags["failure"]) == ("FAILED", "RuntimeError: out of luck")


def test_ctrl_c_kills_the_run(root: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    try:
        run = failed_run(root, lambda: raise_(KeyboardInterrupt()), SystemExit)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (run.status, run.tags["failure"]) == ("KILLED", "KeyboardInterrupt")


def test_sigterm_kills_the_run(root: Path) -> None:
    def terminate() -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return 1.0

    run = failed_run(root, terminate, SIGTERMException)
    assert (run.status, run.tags["failure"]) == ("KILLED", "SIGTERMException")
    assert run.last_checkpoint is None


def test_the_tracker_goes_on_from_a_checkpoint(root: Path) -> None:
    logger = RunLogger(name="resumed")
    fit(logger, [RunTracker(CONFIG)], max_epochs=1)
    run = find_run("resumed")
    again = RunLogger(run_id=run.id)
    fit(again, [RunTracker(CONFIG)], max_epochs=2, ckpt_path=str(run.last_checkpoint))
    run = find_run("resumed")
    assert run.status == "FINISHED"
    assert run.metrics["num_tokens"] == TOKENS
    assert [step for step, _ in run.history("train/loss")] == list(range(1, 16, 2))


def test_a_checkpoint_has_its_points_in_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has the points of the checkpoint's own step too, which Lightning logs just after it."""
    seen: dict[str, list[list[int]]] = {"written": [], "trained on": []}

    def look(when: str) -> None:
        (run,) = search(Store())
        seen[when] += [[step for step, _ in run.history(name)] for name in ("train/loss", "lr")]

    class Looks(Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
            if trainer.global_step == 4:
                look("trained on")

    class Logger(RunLogger):
        def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
            look("written")
            super().after_save_checkpoint(checkpoint_callback)

    fourth = ModelCheckpoint(every_n_train_steps=4, filename="fourth")
    fit(Logger(), [RunTracker(), Looks(), fourth])
    assert seen["written"][:2] == [[1], [1, 3]]
    assert seen["trained on"] == [[1, 3], [1, 3]]


def test_a_fit_without_a_run_logger_is_only_watched(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        fit(False, [RunTracker(CONFIG)], task=Fails(lambda: float("nan")))
    assert not (tmp_path / "mlruns").exists()


def test_a_trial_run_is_not_tracked(tmp_path: Path) -> None:
    fit(RunLogger(), [RunTracker(CONFIG)], fast_dev_run=True)
    assert not (tmp_path / "mlruns").exists()


def test_tokens_are_counted_under_gradient_accumulation(root: Path) -> None:
    fit(RunLogger(name="accumulated"), [RunTracker()], accumulate_grad_batches=4)
    run = find_run("accumulated")
    assert run.metrics["num_tokens"] == TOKENS
    assert [step for step, _ in run.history("num_tokens")] == [1, 3]


def test_mlflow_shows_the_whole_command_and_a_source_without_a_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/bin/seqlab", "fit", "--config", "lm/gru", "--data.path", "a b.txt"])
    tags = provenance()
    assert tags["mlflow.source.name"] == "seqlab fit", "MLflow's page shows what follows the last slash"
    note = description()["mlflow.note.content"].replace(" \\\n ", "")
    assert tags["command"] == "seqlab fit --config lm/gru --data.path 'a b.txt'" and tags["command"] in note
    monkeypatch.setattr("sys.argv", ["/env/seqlab/__main__.py", "fit"])  # python -m seqlab
    assert provenance()["command"] == "seqlab fit"


def test_a_users_own_description_outlives_a_resume(run: TrackedRun) -> None:
    with run.store.calls() as client:
        client.set_tag(run.id, "mlflow.note.content", "the good one")
    logger = RunLogger(run_id=run.id)
    assert logger.run_id == run.id
    logger.log_tags(provenance())
    logger.finalize("success")
    assert find_run(run.id).tags["mlflow.note.content"] == "the good one"


def test_a_checkout_runs_no_program_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hooks").mkdir()
    (program := tmp_path / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o700)
    (tmp_path / ".gitattributes").write_text("* filter=theirs\n")
    (tmp_path / "code.py").write_text("one")
    own = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*own, *command], check=True)
    settings = {"core.fsmonitor": program, "core.hooksPath": program.parent, "filter.theirs.clean": program}
    for name, value in (settings | {"filter.theirs.required": "true"}).items():
        subprocess.run(["git", "config", name, str(value)], check=True)
    (tmp_path / "code.py").write_text("two")
    assert git(tmp_path, "status", "--porcelain", "--untracked-files=no") == "M code.py"
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "status"], check=True, capture_output=True)
    assert (tmp_path / "ran").exists(), "git alone runs it"
