"""A sweep that a signal ends, as it is typed: its fits end with it or are ended later, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

from cli.conftest import TINY, write_text
from seqlab.tracking.runs import TrackedRun, search
from seqlab.tracking.store import Store

TRIALS, STEPS = 3, 150
SLOW = """
import time
from lightning.pytorch.callbacks import Callback

class Slow(Callback):
    def on_train_batch_end(self, *args):
        time.sleep(0.2)
"""
FIT = ["--data.path=text.txt", "--trainer.log_every_n_steps=1", f"--trainer.max_steps={STEPS}"]
FIT += [flag for flag in TINY if flag.startswith(("--model", "--data.seq", "--data.batch"))]
OPTIONS = ["--config=lm/gru", "--vary=model.lr=1e-3..1e-2:log", f"--trials={TRIALS}", "--jobs=2", "--name=mine"]


def sweep(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "seqlab", "sweep", *OPTIONS, "--", *FIT, "--trainer.callbacks=slow.Slow"]
    with (folder / "said").open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def fits() -> dict[str, TrackedRun]:
    return {run.name: run for run in search(Store()) if run.name != "mine"} if Store().exists else {}


def states() -> list[str]:
    storage = f"sqlite:///{Path('mlruns/sweeps.db').resolve()}"
    return [trial.state.name for trial in optuna.load_study(study_name="mine", storage=storage).trials]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_sweep_that_a_signal_ends_goes_on(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW)
    begun = sweep(tmp_path)
    while len([run for run in fits().values() if "train/loss" in run.metrics]) < 2:
        assert begun.poll() is None, Path("said").read_text()
        time.sleep(0.5)
    if how is signal.SIGINT:
        os.killpg(begun.pid, how)  # as a terminal sends it
    else:
        begun.send_signal(how)
    assert begun.wait(timeout=120) == (-how if how is signal.SIGKILL else 128 + how)
    if how is not signal.SIGKILL:
        assert states() == ["WAITING"] * TRIALS
        stopped = fits()
        assert {run.status for run in stopped.values()} == {"KILLED"}
        assert all(run.last_checkpoint is not None for run in stopped.values()) and len(stopped) == 2

    assert sweep(tmp_path).wait(timeout=400) == 0, Path("said").read_text()
    by = "SIGTERM" if how is signal.SIGKILL else how.name  # what is left of a sweep is ended by the next one
    logs = [log.read_text() for log in Path("mlruns").rglob("fits/*.log")]
    assert sum(f"Stopped by {by}" in log for log in logs) == 2
    assert states() == ["COMPLETE"] * TRIALS
    assert sorted(fits()) == [f"mine-{trial}-s0" for trial in range(TRIALS)]
    assert [run.status for run in search(Store())] == ["FINISHED"] * (TRIALS + 1)
    assert all([step for step, _ in run.history("train/loss")] == list(range(STEPS)) for run in fits().values())
