"""Sweeps that are killed or stopped and begun again by the same command: every trial once, in one run."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import optuna
import psutil
import pytest

from cli.conftest import TINY, write_text
from seqlab.cli import main
from seqlab.sweeps.plan import Plan
from seqlab.tracking.runs import TrackedRun, search
from seqlab.tracking.store import Store

pytestmark = pytest.mark.slow
TRIALS, STEPS = 3, 150
SWEEP = ["sweep", "--config", "lm/gru", "--vary", "model.lr=1e-4..1e-2:log", "--trials", "12", "--jobs", "2"]
MATCHED = {"matched": "params 9", "matched.costs": "matched 9 parameters by d_model 3; not matched: 5 bytes of state"}
# The seventh kills the sweep that has started it, and does not end.
FIT = """\
case "$*" in *-6-s0*) if [ ! -e orphan ]; then echo $$ > orphan; kill -9 $PPID; exec sleep 60; fi;; esac
echo "$*" >> ran
"""


@pytest.fixture(name="quick")
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits take a few milliseconds, and their loss is their learning rate."""

    def run_of(plan: Plan, trial: int, seed: int, store: Store) -> Any:
        lines = Path("ran").read_text().splitlines()
        mine = next(line.split() for line in lines if f"--run_name={plan.run_name(trial, seed)} " in line)
        loss = next(float(flag.partition("=")[2]) for flag in mine if flag.startswith("--model.lr="))
        return SimpleNamespace(loss=loss, tags=MATCHED, config={"model": {"lr": loss}, "run_name": "x"})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seqlab.cli.sweep._check_fits", lambda plan: None)
    monkeypatch.setattr("seqlab.sweeps.fits.Forked", Mock(side_effect=OSError))  # a script is no fit to fork
    monkeypatch.setattr("seqlab.sweeps.fits.command", lambda args: ["sh", "-c", FIT, "sh", *args])
    monkeypatch.setattr("seqlab.sweeps.work.score", lambda run, metric: run.loss)
    monkeypatch.setattr("seqlab.comparison.comparison.compare", lambda *_, **__: None)
    monkeypatch.setattr("seqlab.comparison.report.page", lambda _: "")
    for module in ("work", "result"):
        monkeypatch.setattr(f"seqlab.sweeps.{module}.run_of", run_of)


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_twelve_trials_in_one_run(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")  # not anew in the process that is killed
    if (child := os.fork()) == 0:
        os._exit(main(SWEEP))
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    orphan = psutil.Process(int(Path("orphan").read_text()))
    killed = study().trials
    assert len(killed) == 12 and states().count("RUNNING") in (1, 2) and states().count("COMPLETE") in (5, 6)
    begun = {trial.number: trial.params for trial in killed if trial.params}

    assert main(SWEEP) == 0
    said = capfd.readouterr().out
    assert "trial 6 is queued again: its process is gone" in said
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    trials = study().trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 12
    assert len({trial.params["model.lr"] for trial in trials}) == 12
    assert all(trials[number].params == params for number, params in begun.items())
    (run,) = search(Store())
    assert run.status == "FINISHED" and run.metrics["val/loss"] == min(trial.params["model.lr"] for trial in trials)
    assert run.tags["matched"] == "params 9" and " · matched 9 parameters by d_model 3\n" in said
    best = run.artifacts / "best.yaml"
    assert best.read_text() == f"model:\n  lr: {run.metrics['val/loss']}\n" and str(best) in said

    ran = Path("ran").read_text()
    assert all(" --resume=auto" in fit for fit in ran.splitlines())  # as a fit that was stopped goes on
    assert main(SWEEP) == 0 and Path("ran").read_text() == ran  # all is done
    assert main([*SWEEP, "--trials", "13"]) == 0 and len(study().trials) == 13
    assert len(search(Store())) == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_told_to_stop(signum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sixth fit is stopped with it, and done when it is begun again."""
    fit = """\
    trap 'echo "$*" >> stopped; exit 143' TERM
    case "$*" in *-5-s0*) if [ ! -e told ]; then echo > told; kill -%d $PPID; sleep 60 & wait; fi;; esac
    echo "$*" >> ran
    """
    monkeypatch.setattr("seqlab.sweeps.fits.command", lambda args: ["sh", "-c", fit % signum, "sh", *args])
    with pytest.raises(SystemExit) as stopped:
        main(SWEEP[:-2])
    assert stopped.value.code == 128 + signum
    assert "-5-s0" in Path("stopped").read_text()
    assert states() == ["COMPLETE"] * 5 + ["WAITING"] * 7
    (run,) = search(Store())
    assert run.status == "KILLED" and run.tags["failure"].endswith(f"Stopped by {signal.Signals(signum).name}")
    assert main(SWEEP) == 0
    assert states() == ["COMPLETE"] * 12
    assert [one.id for one in search(Store())] == [run.id]


def study() -> optuna.Study:
    storage = f"sqlite:///{Path('mlruns/sweeps.db').resolve()}"
    return optuna.load_study(study_name=None, storage=storage)


def states() -> list[str]:
    return [trial.state.name for trial in study().trials]


SLOW = """
import os
import time
from lightning.pytorch.callbacks import Callback

class Slow(Callback):
    def __init__(self):
        self.pause = 0.0 if os.path.exists("again") else 0.2

    def on_train_batch_end(self, *args):
        time.sleep(self.pause)
"""
FLAGS = ["--data.path=text.txt", "--trainer.log_every_n_steps=1", f"--trainer.max_steps={STEPS}"]
FLAGS += [flag for flag in TINY if flag.startswith(("--model", "--data.seq", "--data.batch"))]
OPTIONS = ["--config=lm/gru", "--vary=model.lr=1e-3..1e-2:log", f"--trials={TRIALS}", "--jobs=2", "--name=mine"]


def sweep(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "seqlab", "sweep", *OPTIONS, "--", *FLAGS, "--trainer.callbacks=slow.Slow"]
    with (folder / "said").open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def fits() -> dict[str, TrackedRun]:
    return {run.name: run for run in search(Store()) if run.name != "mine"} if Store().exists else {}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
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

    (tmp_path / "again").touch()
    assert sweep(tmp_path).wait(timeout=400) == 0, Path("said").read_text()
    by = "SIGTERM" if how is signal.SIGKILL else how.name  # what is left of a sweep is ended by the next one
    logs = [log.read_text() for log in Path("mlruns").rglob("fits/*.log")]
    assert sum(f"Stopped by {by}" in log for log in logs) == 2
    assert states() == ["COMPLETE"] * TRIALS
    assert sorted(fits()) == [f"mine-{trial}-s0" for trial in range(TRIALS)]
    assert [run.status for run in search(Store())] == ["FINISHED"] * (TRIALS + 1)
    assert all([step for step, _ in run.history("train/loss")] == list(range(STEPS)) for run in fits().values())
