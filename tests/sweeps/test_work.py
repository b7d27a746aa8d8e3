"""Workers of a sweep: pruning, kills, the trial and the GPUs of each, and the best trials."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import optuna
import psutil
import pytest
import torch
from rich.console import Console

from seqlab.callbacks.stopping import StoppedError
from seqlab.cli.sweep import _places, _work
from seqlab.sweeps.fits import Place
from seqlab.sweeps.plan import Plan, make_plan
from seqlab.sweeps.queue import Queue, told
from seqlab.sweeps.result import best_trials, failures, importance, table
from seqlab.sweeps.space import grid
from seqlab.sweeps.work import Worker
from seqlab.tracking.provenance import process_tags
from seqlab.tracking.store import Store


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seqlab.sweeps.work.LOOK", 0.02)


def plan_of(*values: str, **more: Any) -> Plan:
    return make_plan({"config": "lm/gru", "vary": {"model.lr": list(values)}, "sampler": "grid", **more}, [])


def queue_of(plan: Plan, **more: Any) -> Queue:
    return Queue(plan, f"sqlite:///{Path('sweeps.db').resolve()}", **more)


def work(plan: Plan, queue: Queue, jobs: int = 1) -> list[str]:
    """The messages of a worker."""
    told: list[str] = []
    places = [Place()] * jobs
    Worker(plan, queue, "parent", Path("fits"), places, lambda: False, told.append, lambda: None).run(to_the_end=True)
    return told


def states(queue: Queue) -> list[str]:
    return [trial.state.name for trial in queue.study.trials]


def claim(queue: Queue) -> tuple[optuna.Trial, Any]:
    claimed = queue.claim()
    assert claimed is not None
    return claimed


def pretend(monkeypatch: pytest.MonkeyPatch, plan: Plan, fit: str, metrics: dict[str, list[float]]) -> None:
    """Fits are this script; what they log is this, times their learning rate."""
    lrs = plan.vary["model.lr"]

    def run_of(plan: Plan, trial: int, seed: int, store: Store) -> Any:
        logged = {name: [value * float(lrs[trial]) for value in values] for name, values in metrics.items()}
        history = lambda name: list(enumerate(logged[name]))  # noqa: E731
        return SimpleNamespace(history=history, metrics=logged, name="a run", tags={})

    monkeypatch.setattr("seqlab.sweeps.fits.Forked", Mock(side_effect=OSError))  # a script is no fit to fork
    monkeypatch.setattr("seqlab.sweeps.fits.command", lambda args: ["sh", "-c", fit, "sh", *args])
    monkeypatch.setattr("seqlab.sweeps.work.run_of", run_of)


def test_what_does_badly_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("1", "5", "9", prune=True)
    # The others would take a minute.
    pretend(monkeypatch, plan, 'case "$*" in *lr=1\\ *) sleep 0.3;; *) exec sleep 60;; esac', {"val/loss": [1.0]})
    queue = queue_of(plan)
    told = work(plan, queue)
    assert states(queue) == ["COMPLETE", "PRUNED", "PRUNED"]
    assert told[1:] == ["trial 1 pruned after 1 validations", "trial 2 pruned after 1 validations"]
    assert best_trials(queue.study)[0].params == {"model.lr": "1"}
    assert queue.study.trials[2].intermediate_values == {1: 9.0}


def test_a_fit_that_is_killed_ends_its_trial_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("1", "2", "3", seeds=2)
    pretend(
        monkeypatch, plan, 'case "$*" in *lr=2\\ *seed_everything=1*) kill -9 $$;; esac', {"val/loss": [3.0, 2.0, 4.0]}
    )
    queue = queue_of(plan)
    told = work(plan, queue, jobs=2)
    assert states(queue) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert "trial 1 failed: killed by SIGKILL" in told
    assert queue.study.trials[2].values == [6.0] and queue.study.trials[2].user_attrs["seeds"] == [[6.0], [6.0]]
    shown = [list(column.cells) for column in table(plan, queue.study).columns]
    assert [str(cell) for cell in shown[0]] == ["0", "2", "1"]
    assert [str(cell) for cell in shown[-1]] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert failures(queue.study) == {"killed by SIGKILL": [1]}


def test_a_signal_while_a_fit_begins_stops_that_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*args: Any, **more: Any) -> Any:
        process = Popen(*args, **more)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    plan = plan_of("1", "2")
    pretend(monkeypatch, plan, "exec sleep 60", {})
    monkeypatch.setattr("seqlab.sweeps.fits.Popen", begin)
    queue = queue_of(plan)
    before = psutil.Process().children()
    with pytest.raises(StoppedError, match="SIGTERM"):
        _work(plan, queue, "parent", Path(), [Place()], to_the_end=True)
    assert psutil.Process().children() == before
    assert states(queue) == ["WAITING"] * 2


def test_of_two_objectives_all_that_none_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    for loss, best in ((1.0, ["-1", "1", "2"]), (-1.0, ["2"])):
        plan = plan_of("1", "2", "-1", objective="val/loss,val/accuracy", name=f"by-{len(best)}")
        pretend(monkeypatch, plan, "", {"val/loss": [loss], "val/accuracy": [1.0]})
        work(plan, queue := queue_of(plan))
        assert sorted(trial.params["model.lr"] for trial in best_trials(queue.study)) == best


def test_what_an_objective_depends_on() -> None:
    """From ten trials on, if several options vary."""
    given = {"config": "lm/gru", "vary": {"a": [1, 2, 3, 4, 5], "b": [1, 2]}, "sampler": "grid"}
    plan, study = make_plan(given, []), optuna.create_study()
    for number, setting in enumerate(grid(plan.space)):
        assert importance(plan, study) == {}, number
        value = 10.0 * float(setting["a"]) + float(setting["b"])
        study.add_trial(optuna.trial.create_trial(params=setting, distributions=plan.space, value=value))
    [shares] = importance(plan, study).values()
    assert list(shares) == ["a", "b"] and shares["a"] > 0.9
    assert importance(replace(plan, vary={"a": [1, 2, 3, 4, 5]}), study) == {}


def test_of_one_setting_no_option_matters() -> None:
    given = {"config": "lm/gru", "vary": {"a": [1, 2], "b": [1, 2]}, "sampler": "grid"}
    plan, study = make_plan(given, []), optuna.create_study()
    for value in range(12):
        trial = optuna.trial.create_trial(params={"a": "1", "b": "1"}, distributions=plan.space, value=value)
        study.add_trial(trial)
    assert importance(plan, study) == {}


def test_a_table_fits_its_terminal() -> None:
    queue = queue_of(plan := plan_of("[Mamba, Mamba, {class_path: Attention, pattern: SlidingWindow}]", *"12345"))
    for number in range(5):
        trial, _ = claim(queue)
        if number < 4:
            trial.set_user_attr("seeds", [[1.0]])
            queue.study.tell(trial, [float(-number)])
    shown = table(plan, queue.study, 3)
    cells = [[str(cell) for cell in column.cells] for column in shown.columns]
    assert cells[0] == ["3", "2", "4"] and cells[-1] == ["COMPLETE", "COMPLETE", "RUNNING"]
    assert shown.caption == "2 more have ended · 1 wait"
    console = Console(width=60, file=(said := io.StringIO()))
    console.print(table(plan, queue.study, 5))
    assert said.getvalue().count("\n") == 8, "the head, a line each, and what waits"
    console.print(table(plan, queue.study))
    assert "SlidingWindow" in said.getvalue()


def test_two_workers_take_no_trial_twice() -> None:
    plan = plan_of("1", "2", "3")
    first = queue_of(plan)
    first.study.set_user_attr("parent", "a run")
    second = queue_of(plan, join=0.0)
    claimed = [claim(queue) for queue in (first, second, first)]
    assert [trial.number for trial, _ in claimed] == [0, 1, 2] and second.claim() is None
    assert first.put_back_lost() == []  # their process is this one
    elsewhere = process_tags() | {"host.id": "another"}
    for (trial, _), beat in zip(claimed, ("0", "9e9"), strict=False):
        trial.set_user_attr("worker", elsewhere | {"beat": beat})
    assert second.put_back_lost() == [0]
    again, settings = claim(second)
    assert (again.number, settings) == (0, claimed[0][1])


def test_a_storage_on_a_full_disk_is_told_and_is_whole() -> None:
    queue = queue_of(plan_of("1", "2"))
    trial, _ = claim(queue)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path("sweeps.db").stat().st_size, before[1]))
    try:
        refused = pytest.raises(OSError, match=r"--storage sqlite:///.*db: \(sqlite3.OperationalError\) .* continues$")
        with refused, told("sqlite:///sweeps.db"):
            for number in range(500):
                trial.set_user_attr(f"attribute {number}", "long" * 500)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    queue.put_back(trial)
    assert claim(queue)[0].number == 0


KILLED = """
import os, sqlite3
database = sqlite3.connect("sweeps.db", isolation_level=None)
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN IMMEDIATE")
database.execute("CREATE TABLE half (text)")
database.executemany("INSERT INTO half VALUES (?)", [("x" * 1000,)] * 999)
os._exit(9)
"""
"""Ends a process in the middle of a write."""


def test_a_storage_goes_on_after_a_process_was_killed_while_it_wrote() -> None:
    claim(queue_of(plan_of("1", "2")))
    assert subprocess.run([sys.executable, "-c", KILLED]).returncode == 9
    assert Path("sweeps.db-journal").stat().st_size > 0
    assert claim(queue_of(plan_of("1", "2")))[0].number == 1


def test_a_config_that_has_changed_is_another_sweep() -> None:
    config = Path("mine.yaml")
    given = {"config": "mine.yaml", "vary": {"a": "1,2"}, "trials": 1}
    config.write_text("a: 1")
    queue_of(make_plan(given, []))
    config.write_text("a: 2")
    with pytest.raises(ValueError, match=r"was begun with config_files {'mine.yaml': .*; give another --name"):
        queue_of(make_plan(given, []))
    config.write_text("a: 1")
    queue_of(make_plan(given, []))


def test_each_job_has_gpus_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _places(2, None) == [Place(None, None, max(1, (os.cpu_count() or 1) // 2))] * 2
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [place[:2] for place in _places(2, 2)] == [(2, "4,5"), (2, "6,7")]
    with pytest.raises(ValueError, match="need 6 GPUs; there are 4"):
        _places(3, 2)
