"""Sweeps that are killed or stopped and begun again by the same command: every trial once, in one run."""

from __future__ import annotations

import importlib
import os
import signal
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import optuna
import psutil
import pytest

from seqlab.cli import main
from seqlab.sweeps.plan import Plan
from seqlab.tracking.runs import search
from seqlab.tracking.store import Store

pytestmark = pytest.mark.slow
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
    assert "trial 6 waits again: its process was gone" in said
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
