from __future__ import annotations

import math
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
from tracking.tiny import BATCH_SIZE, BATCHES, IGNORED_A_WINDOW, SEQ_LEN, TinyTask, assert_same, fit, make_run

CONFIG = {"model": {"lr": 0.1, "names": ["a", None]}, "trainer": {"max_epochs": 2}, "run_name": "tiny"}
TOKENS = 2 * BATCHES * BATCH_SIZE * (SEQ_LEN - IGNORED_A_WINDOW)
GIT = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]


def commit_all() -> None:
    """Makes the working folder a checkout of what it holds."""
    for command in (["init", "-q"], ["add", "*.py", ".gitattributes"], ["commit", "-q", "-m", "m"]):
        subprocess.run([*GIT, *command], check=True)


def steps(run: TrackedRun, metric: str = "train/loss") -> list[int]:
    return [step for step, _ in run.history(metric)]


class Fails(TinyTask):
    """Does something at the fifth step."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__()
        self.action = action

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * self.action() if batch_idx == 4 else loss


def test_a_fit_stores_all_of_itself(root: Path) -> None:
    Path("code.py").touch()
    Path(".gitattributes").touch()
    commit_all()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    fit(RunLogger("quickstart", name="tiny"), [RunTracker(CONFIG)])
    run = find_run("tiny")
    assert (run.status, run.experiment, run.config) == ("FINISHED", "quickstart", CONFIG)
    lists = {"model.names.0": "a", "model.names.1": "null"}
    assert run.params == {"model.lr": "0.1", **lists, "trainer.max_epochs": "2", "run_name": "tiny"}
    tags = {"config_hash": config_hash(CONFIG), "git.commit": head, "git.dirty": "false"}
    tags |= {"package.torch": torch.__version__, "hardware.cores": str(os.cpu_count()), "dataset": "tiny dddddddddddd"}
    assert tags.items() <= run.tags.items()
    assert float(run.tags["hardware.memory_gb"]) > 0
    assert run.tags["hardware.tf32"] == str(torch.backends.cudnn.allow_tf32).lower()
    packages = run.artifact("packages.txt")
    assert packages is not None
    assert f"lightning=={run.tags['package.lightning']}\n" in packages.read_text()

    metrics = run.metrics
    sizes = {"num_params": 11 * 8 + 8 * 11 + 11, "state_size": 3 * SEQ_LEN, "num_tokens": TOKENS}
    assert (sizes | {"num_devices": 1, "lr": 0.1}).items() <= metrics.items()
    assert metrics["perf/tokens_per_s"] > 0
    assert metrics["perf/peak_memory_mb"] > 50
    assert 0 < metrics["perf/train_seconds"] < metrics["perf/wall_seconds"]
    assert steps(run) == steps(run, "num_tokens") == list(range(1, 16, 2))
    assert steps(run, "val/loss") == [7, 15]

    checkpoints = root / "quickstart" / run.id / "artifacts" / "checkpoints"
    assert run.best_checkpoint == checkpoints / "best.ckpt"
    assert run.last_checkpoint == checkpoints / "last.ckpt"
    assert sorted(path.name for path in checkpoints.iterdir()) == ["best.ckpt", "last.ckpt"]
    left = [path.name for path in root.iterdir() if path.suffix != ".lock"]
    assert sorted(left) == ["mlflow.db", "quickstart"]
    assert [path.name for path in unsent(run.store).iterdir()] == [".lock"]

    with run.store.calls() as client:
        (data,) = client.get_run(run.id).inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("tiny", "d" * 36)
    assert '"tokens": 128' in data.dataset.profile and '"digest": "' + "d" * 64 in data.dataset.profile


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


def test_a_logged_fit_that_samples_the_use_of_the_machine_equals_an_unlogged_one_bit_by_bit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqlab.tracking.system.SECONDS", 0.0)
    _, logged = fit(RunLogger(name="sampled"), [RunTracker(CONFIG)])
    _, unlogged = fit(False)
    assert_same(logged, unlogged)
    run = find_run("sampled")
    assert 0 <= run.metrics["system/cpu_utilization_percentage"] <= 100
    assert 0 < run.metrics["system/system_memory_usage_percentage"] < 100
    assert steps(run, "system/disk_usage_megabytes") == list(range(1, 16, 2))


def raise_(error: BaseException) -> float:
    raise error


def terminate() -> float:
    os.kill(os.getpid(), signal.SIGTERM)
    return 1.0


@pytest.mark.parametrize(
    ("action", "error", "status", "failure"),
    [
        (lambda: math.nan, DivergedError, "FAILED", "the training loss is nan at step 5 (epoch 0)"),
        (lambda: math.inf, DivergedError, "FAILED", "the training loss is inf"),
        (lambda: raise_(RuntimeError("out of luck")), RuntimeError, "FAILED", "RuntimeError: out of luck"),
        (lambda: raise_(KeyboardInterrupt()), SystemExit, "KILLED", "KeyboardInterrupt"),
        (terminate, SIGTERMException, "KILLED", "SIGTERMException"),
    ],
)
def test_a_fit_that_ends_early_says_in_its_run_why(
    action: Callable[[], float], error: type[BaseException], status: str, failure: str, store: Store
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(error):
            fit(RunLogger(), [RunTracker(CONFIG)], task=Fails(action))
    finally:
        signal.signal(signal.SIGINT, handler)
    [run] = search(store)
    assert run.status == status
    assert failure in run.tags["failure"] if error is DivergedError else failure == run.tags["failure"]
    assert steps(run)[-1] == 3
    assert run.last_checkpoint is None


def test_the_tracker_goes_on_from_a_checkpoint(root: Path) -> None:
    fit(RunLogger(name="resumed"), [RunTracker(CONFIG)], max_epochs=1)
    run = find_run("resumed")
    fit(RunLogger(run_id=run.id), [RunTracker(CONFIG)], max_epochs=2, ckpt_path=str(run.last_checkpoint))
    run = find_run("resumed")
    assert (run.status, run.metrics["num_tokens"], steps(run)) == ("FINISHED", TOKENS, list(range(1, 16, 2)))


def test_a_checkpoint_has_its_points_in_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has the points of the checkpoint's own step too, which Lightning logs just after it."""
    seen: dict[str, list[list[int]]] = {"written": [], "trained on": []}

    def look(when: str) -> None:
        (run,) = search(Store())
        seen[when] += [steps(run), steps(run, "lr")]

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


def test_fits_without_a_run_logger_and_of_a_trial_run_are_not_tracked(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        fit(False, [RunTracker(CONFIG)], task=Fails(lambda: math.nan))
    fit(RunLogger(), [RunTracker(CONFIG)], fast_dev_run=True)
    assert not (tmp_path / "mlruns").exists()


def test_tokens_are_counted_under_gradient_accumulation(root: Path) -> None:
    fit(RunLogger(name="accumulated"), [RunTracker()], accumulate_grad_batches=4)
    run = find_run("accumulated")
    assert (run.metrics["num_tokens"], steps(run, "num_tokens")) == (TOKENS, [1, 3])


def test_mlflow_shows_the_whole_command_and_a_source_without_a_slash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/bin/seqlab", "fit", "--config", "lm/gru", "--data.path", "a b.txt"])
    tags = provenance()
    assert tags["mlflow.source.name"] == "seqlab fit", "MLflow's page shows what follows the last slash"
    note = description()["mlflow.note.content"].replace(" \\\n ", "")
    assert tags["command"] == "seqlab fit --config lm/gru --data.path 'a b.txt'" and tags["command"] in note
    monkeypatch.setattr("sys.argv", ["/env/seqlab/__main__.py", "fit"])  # python -m seqlab
    assert provenance()["command"] == "seqlab fit"


def test_a_users_own_description_outlives_a_resume(store: Store) -> None:
    run_id = make_run(store, "described", tags=provenance() | {"mlflow.note.content": "the good one"})
    logger = RunLogger(run_id=run_id)
    assert logger.run_id == run_id
    logger.log_tags(provenance())
    logger.finalize("success")
    assert find_run(run_id).tags["mlflow.note.content"] == "the good one"


def test_a_checkout_runs_no_program_that_it_names(tmp_path: Path) -> None:
    """Its uncommitted changes are noted all the same."""
    (tmp_path / "hooks").mkdir()
    (program := tmp_path / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o700)
    Path(".gitattributes").write_text("* filter=theirs\n")
    Path("code.py").write_text("one")
    commit_all()
    settings = {"core.fsmonitor": program, "core.hooksPath": program.parent, "filter.theirs.clean": program}
    for name, value in (settings | {"filter.theirs.required": "true"}).items():
        subprocess.run(["git", "config", name, str(value)], check=True)
    Path("code.py").write_text("two")
    assert git(tmp_path, "status", "--porcelain", "--untracked-files=no") == "M code.py"
    assert provenance()["git.dirty"] == "true"
    assert not Path("ran").exists()
    subprocess.run(["git", "status"], check=True, capture_output=True)
    assert Path("ran").exists(), "git alone runs it"
