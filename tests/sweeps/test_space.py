"""Search spaces as a user writes them, and the contents of a sweep file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from seqlab.sweeps.plan import make_plan, read_file
from seqlab.sweeps.space import grid, read_space

GIVEN = {"config": "lm/gru", "vary": {"model.lr": "1e-4..1e-2:log"}, "trials": 3}
MORE = ["--model.warmup_steps=2"]


@pytest.mark.parametrize(
    ("given", "distribution"),
    [
        ("1e-4..1e-2:log", FloatDistribution(1e-4, 1e-2, log=True)),
        ("0..0.5", FloatDistribution(0, 0.5)),
        ("-1.5..2", FloatDistribution(-1.5, 2)),
        ("1..8", IntDistribution(1, 8)),
        ("16..512:log", IntDistribution(16, 512, log=True)),
        ("GRU,LSTM", CategoricalDistribution(["GRU", "LSTM"])),
        ("1e-3, 3e-3,0.01", CategoricalDistribution(["1e-3", "3e-3", "0.01"])),
        ("GRU,[Mamba, Attention]", CategoricalDistribution(["GRU", '["Mamba", "Attention"]'])),
        ("{a: [1, 2]},2026-01-31", CategoricalDistribution(['{"a": [1, 2]}', '"2026-01-31"'])),
        ([True, None, "a,b"], CategoricalDistribution(["true", "null", "a,b"])),
    ],
)
def test_ranges_and_lists(given: Any, distribution: BaseDistribution) -> None:
    assert read_space({"option": given}) == {"option": distribution}


@pytest.mark.parametrize(
    ("vary", "told"),
    [
        ({}, "something that varies"),
        ({"a": "2..1"}, "--vary a=2..1: a range must rise"),
        ({"a": "0..1:log"}, "above 0 if it is logarithmic"),
        ({"a": "1..1e400"}, "between finite numbers"),
        ({"a": "1e-4...1e-2"}, "at least two different values"),
        ({"a": "GRU"}, "at least two different values"),
        ({"a": "GRU,GRU"}, "at least two different values"),
        ({"a": "[1,2"}, "neither a range nor a list"),
        ({"a": "2026-13-45,b"}, "neither a range nor a list"),
        ({"a": 3}, "--vary a=3: a list needs at least two"),
        ({"a": {"b": 1, "c": 2}}, "a list needs at least two different values"),
    ],
)
def test_what_is_no_range_is_refused(vary: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("[", r"\[")):
        read_space(vary)


def test_a_grid_is_every_setting() -> None:
    settings = grid(read_space({"a": "x,y", "b": "1..3"}))
    assert settings == [{"a": a, "b": b} for a in "xy" for b in (1, 2, 3)]
    with pytest.raises(ValueError, match="needs comma-separated values of lr"):
        grid(read_space({"lr": "0..0.5"}))


def test_a_file_says_what_the_options_say(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "config: lm/gru\nvary:\n  model.lr: 1e-4..1e-2:log\n  model.model.mixer: [GRU, LSTM]\n"
        "trials: 4\nfit: {trainer.max_steps: 9, data.path: 'a b.txt', data.train: 2026-01-31}\n"
    )
    plan, again, other = (make_plan(read_file(file), more) for more in (MORE, MORE, []))
    of_file = ["--config=lm/gru", "--trainer.max_steps=9", "--data.path=a b.txt", "--data.train=2026-01-31"]
    assert plan.flags({"model.lr": 0.5}, 1) == [*of_file, *MORE, "--model.lr=0.5", "--seed_everything=1"]
    assert plan.name == again.name != other.name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "is not YAML"),
        ("2026-01-31: 1", "is not YAML"),
        ("- 1", "is not a sweep file"),
        ("trial: 1", "trial is not a key"),
        ("trials: many", "trials is 'many'; accepted: int"),
        ("seeds: true", "seeds is True; accepted: int"),
    ],
)
def test_a_file_that_is_none(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(ValueError, match=told):
        read_file(tmp_path / "sweep.yaml")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"config": []}, "needs a config"),
        ({"trials": 0}, "--trials must be from 1 to 1000000, got 0"),
        ({"trials": 1000001}, "--trials must be from 1 to 1000000, got 1000001"),
        ({"seeds": 10**30}, "--seeds must be from 1 to 1000000"),
        ({"sampler": "best"}, "accepted: tpe, random, grid"),
        ({"sampler": "grid"}, "needs comma-separated values of model.lr"),
        ({"vary": {"seed_everything": "1..3"}}, "sets seed_everything itself"),
        ({"fit": ["--run_name=x"]}, "sets run_name itself"),
        ({"prune": True, "objective": "val/loss,state_size"}, "--prune needs one objective"),
        ({"name": "a/b"}, "--name 'a/b': accepted"),
        ({"name": ""}, "--name '': accepted"),
        ({"storage": ""}, "--storage is empty"),
        ({"objective": ""}, "--objective : accepted"),
        ({"objective": "val/loss,val/loss"}, "--objective val/loss,val/loss: accepted"),
    ],
)
def test_a_plan_that_is_none(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_plan(GIVEN | changed, [])


def test_a_file_that_is_missing_may_be_an_option_without_its_dashes() -> None:
    with pytest.raises(ValueError, match=r"there is no sweep file trainer\.max_steps=3; .* begin with --"):
        read_file(Path("trainer.max_steps=3"))
