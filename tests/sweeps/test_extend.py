"""Grids that continue while their best value lies at an end."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.sweeps.extend import BEYOND, ladder
from seqlab.sweeps.fits import Place
from seqlab.sweeps.plan import Plan, make_plan
from seqlab.sweeps.queue import Queue
from seqlab.sweeps.work import Worker

GRID = {"config": "lm/gru", "sampler": "grid", "extend": "model.lr"}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seqlab.sweeps.work.LOOK", 0.02)


def test_a_ladder_continues_at_the_ratio_of_each_end() -> None:
    assert ladder("lr", ["1e-2", "1e-3", "0.02"]) == [
        *("1e-07", "1e-06", "1e-05", "0.0001"),
        *("1e-3", "1e-2", "0.02"),
        *("0.04", "0.08", "0.16", "0.32"),
    ]


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=6, unique=True))
def test_a_ladder_rises_through_the_values_as_given(values: list[int]) -> None:
    steps = ladder("heads", [str(value) for value in values])
    assert [*map(float, steps[BEYOND:-BEYOND])] == sorted(values) and len(steps) == len(values) + 2 * BEYOND
    assert max(map(float, steps[:BEYOND])) < min(values) and max(values) < min(map(float, steps[-BEYOND:]))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"vary": {"model.lr": "0,1"}}, "--extend model.lr: its values must be different positive numbers, got 0,1"),
        ({"vary": {"model.lr": "1,1.0"}}, "different positive numbers, got 1,1.0"),
        ({"vary": {"model.lr": "a,b"}}, "different positive numbers, got a,b"),
        ({"vary": {"model.model.mixer": "GRU,LSTM"}}, "--extend model.lr: accepted with --sampler grid and one"),
        ({"vary": {"model.lr": "1,2"}, "extend": ""}, "--extend : accepted with --sampler grid"),
        ({"vary": {"model.lr": "1,2"}, "sampler": "random", "trials": 3}, "accepted with --sampler grid"),
        ({"vary": {"model.lr": "1,2"}, "objective": "val/loss,state_size"}, "and one objective: model.lr"),
    ],
)
def test_what_cannot_be_extended(more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_plan({**GRID, **more}, [])


def swept(monkeypatch: pytest.MonkeyPatch, score: Any, **more: Any) -> tuple[list[str], list[str]]:
    """Settings that a sweep tried, and its messages; `score` gives the objective of a setting; None = failure."""
    plan = make_plan({**GRID, **more}, [])

    def run_of(plan: Plan, trial: int, seed: int, store: Any) -> Any:
        value = score(queue.study.trials[trial].params)
        logged = {} if value is None else {plan.objectives[0]: value}
        return SimpleNamespace(history=lambda name: list(enumerate([value])), metrics=logged, name="a run", tags={})

    monkeypatch.setattr("seqlab.sweeps.fits.Forked", Mock(side_effect=OSError))
    monkeypatch.setattr("seqlab.sweeps.fits.command", lambda args: ["true"])
    monkeypatch.setattr("seqlab.sweeps.work.run_of", run_of)
    queue, told = Queue(plan, f"sqlite:///{Path('sweeps.db').resolve()}"), list[str]()
    for _ in range(2):  # the second finds nothing to do
        worker = Worker(plan, queue, "p", Path("fits"), [Place()] * 2, lambda: False, told.append, lambda: None)
        worker.run(to_the_end=True)
    return [" ".join(map(str, trial.params.values())) for trial in queue.study.trials], told


def from_optimum(at: float) -> Any:
    return lambda setting: abs(math.log(float(setting["model.lr"]) / at)) + 1


@pytest.mark.parametrize(
    ("at", "more"),
    [
        (4.0, []),
        (8.0, ["16"]),
        (16.0, ["16", "32"]),
        (2.0, ["1"]),
        (1e9, ["16", "32", "64", "128"]),
        (1e-9, ["1", "0.5", "0.25", "0.125"]),
    ],
)
def test_a_grid_goes_on_until_the_best_has_two_neighbours(
    at: float, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, told = swept(monkeypatch, from_optimum(at), vary={"model.lr": "2,4,8"})
    assert tried == ["2", "4", "8", *more]
    assert sum("is at an end of its grid, which continues" in line for line in told) == len(more)


def test_more_is_better_of_an_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    better = lambda setting: -from_optimum(8.0)(setting)  # noqa: E731
    assert swept(monkeypatch, better, vary={"model.lr": "2,4,8"}, objective="val/accuracy")[0][3:] == ["16"]


def test_each_model_has_a_grid_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def score(setting: dict[str, Any]) -> float:
        return float(from_optimum({"GRU": 4.0, "LSTM": 8.0, "RNN": 1.0}[setting["model.model.mixer"]])(setting))

    vary = {"model.model.mixer": "GRU,LSTM,RNN", "model.lr": "2,4,8"}
    assert sorted(swept(monkeypatch, score, vary=vary)[0][9:]) == ["LSTM 16", "RNN 0.5", "RNN 1"]


def test_a_rate_that_diverges_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = lambda setting: None if float(setting["model.lr"]) > 8 else from_optimum(1e9)(setting)  # noqa: E731
    assert swept(monkeypatch, fails, vary={"model.lr": "2,4,8"})[0] == ["2", "4", "8", "16"]
    assert swept(monkeypatch, lambda _: None, vary={"model.lr": "1,3"})[0] == ["1", "3"], "nothing to go on from"
