"""With a real MLflow server, which takes its time to start."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from lightning.pytorch.callbacks import Callback, LambdaCallback

from seqlab.callbacks.run_tracker import RunTracker
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.registry import promote, register
from seqlab.tracking.runs import find_run, settle
from seqlab.tracking.server import UI_ENVIRONMENT
from seqlab.tracking.state_folder import unsent
from seqlab.tracking.store import Store
from servers import free_port, running
from tracking.tiny import fit, make_run

pytestmark = pytest.mark.slow
CONFIG = {"lr": 0.1}


class Server:
    """An MLflow server of this machine that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder, self.running = free_port(), folder, ExitStack()
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--workers", "1"),
            *("--artifacts-destination", str(self.folder / "artifacts")),
        ]
        environment = {**os.environ, **UI_ENVIRONMENT}
        self.running.enter_context(running(command, environment, f"{self.uri}/health", self.folder))

    def stop(self) -> None:
        self.running.close()


@pytest.fixture
def server(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    (folder := tmp_path / "server").mkdir()
    shutil.copy(template, folder / "mlflow.db")
    server = Server(folder)
    server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    yield server
    server.stop()


def after_first_epoch(action: Callable[[], None]) -> Callback:
    return LambdaCallback(on_train_epoch_end=lambda trainer, _: action() if trainer.current_epoch == 0 else None)


def check(run_name: str, root: str = "mlruns") -> None:
    run = find_run(run_name, Store(root))
    assert (run.status, run.experiment, run.config, run.params) == ("FINISHED", "remote", CONFIG, {"lr": "0.1"})
    assert [step for step, _ in run.history("train/loss")] == list(range(1, 16, 2))
    assert [step for step, _ in run.history("val/loss")] == [7, 15]
    for checkpoint in (run.best_checkpoint, run.last_checkpoint):
        assert checkpoint is not None and checkpoint.is_relative_to(Path(root).resolve())
        assert checkpoint.stat().st_size > 1000


def test_a_version_is_uploaded_and_promoted(server: Server, tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        folder.mkdir()
        (folder / "MLmodel").write_text("flavors: {}\n")

    run = find_run(make_run(Store(), "there", experiment="remote"))
    version = register(run, "fp32", "portable", "seal", save)
    assert promote(find_run("there", Store("another machine"))) == (None, version)
    (uploaded,) = (server.folder / "artifacts").rglob("MLmodel")
    with run.store.calls() as client:
        champion = client.get_model_version_by_alias("remote", "champion")
        fetched = client.download_artifacts(run.id, champion.source.partition(f"{run.id}/")[2], str(tmp_path))
    assert Path(fetched, "MLmodel").read_bytes() == uploaded.read_bytes()


def test_a_server_that_goes_away_gets_the_rest_when_it_is_back(server: Server, tmp_path: Path) -> None:
    fit(RunLogger("remote", name="cut"), [RunTracker(CONFIG), after_first_epoch(server.stop)])
    assert list(unsent(Store()).glob("*.jsonl"))
    server.start()
    assert find_run("cut").status == "RUNNING", "to find a run sends nothing"
    settle(Store())
    check("cut")
    check("cut", root="another machine")
    assert not list(unsent(Store()).glob("*.jsonl"))
    uploaded = sorted(path.name for path in (server.folder / "artifacts").rglob("*.ckpt"))
    assert uploaded == ["best.ckpt", "last.ckpt"]
    assert find_run("cut", Store("a third")).artifact("nothing.txt") is None


def test_a_fit_may_begin_before_its_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.stop()
    monkeypatch.setattr("seqlab.tracking.journal.FIRST_WAIT", 0.0)
    logger = RunLogger("remote", name="early")
    fit(logger, [RunTracker(CONFIG), after_first_epoch(server.start)])
    check("early")
    check("early", root="another machine")
    run = find_run(str(logger.run_id))
    assert run.id != logger.run_id, "the server gave it another id"
    assert run.best_checkpoint is not None
    assert run.best_checkpoint.parent == logger.checkpoint_dir

    again = RunLogger(run_id=run.id)
    again.log_metrics({"val/loss": 9.0}, 99)
    again.finalize("success")
    assert find_run(run.id).history("val/loss")[-1] == (99, 9.0)
