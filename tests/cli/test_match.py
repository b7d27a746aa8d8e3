"""`--match` solves the size of a model for a budget, and the fit is the one that is given that size."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seqlab.callbacks.step_seconds as timing
import seqlab.cli.matched as matching
from cli.conftest import TINY, Seqlab, same_weights
from seqlab.budgets.match import Cost
from seqlab.callbacks.step_seconds import step_seconds
from seqlab.config.configs import config_path, load_short_yaml
from seqlab.tracking.runs import find_run

GRU = ("fit", "--config=lm/gru", *(option for option in TINY if "d_model" not in option), "--trainer.max_steps=2")


@pytest.mark.slow
def test_a_fit_is_the_one_that_was_given_the_width(quick: Seqlab) -> None:
    """Bit for bit; the run has the width, and goes on with it."""
    said = quick(*GRU, "--match=params", "--to=20000", "--run_name=matched").stderr
    run = find_run("matched")
    assert run.metrics["num_params"] == pytest.approx(20000, rel=0.02)
    assert run.metrics["num_flops"] > 6 * 15000  # all but the vectors
    assert run.tags["matched"] == "params 20000"
    width = run.config["model"]["init_args"]["model"]["init_args"]["d_model"]
    (line,) = (line for line in said.splitlines() if line.startswith("matched"))
    assert line.startswith(f"matched {run.metrics['num_params']:,.0f} parameters (")
    assert f"% of 20,000) by d_model {width} (was 128); not matched: " in line
    assert f"{4 * run.metrics['state_size']:,.0f} bytes of state" in line

    quick(*GRU, f"--model.model.d_model={width}", "--run_name=given")
    assert same_weights("matched", "given")

    assert "matched" not in quick("resume", "matched", "--trainer.max_steps=3").stderr
    assert find_run("matched").metrics["num_params"] == run.metrics["num_params"]
    assert "a run that goes on has its size" in quick("resume", "matched", "--to=30000", code=2).stderr


@pytest.mark.slow
def test_seconds_are_measured_by_a_fit_of_each_width(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by a microsecond per parameter at each reading."""
    clock = SimpleNamespace(now=0.0, tick=0.0)

    def look() -> float:
        clock.now += clock.tick
        return clock.now

    def measured(task: Any, *rest: Any) -> Cost:
        clock.tick = 1e-6 * sum(weight.numel() for weight in task.parameters())
        return step_seconds(task, *rest)

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=look))
    monkeypatch.setattr(timing, "TIMED", 2)
    monkeypatch.setattr(matching, "step_seconds", measured)
    options = "--match=seconds", "--to=0.0105", "--trainer.accumulate_grad_batches=2", "--checkpoint_activations=true"
    said = quick(*GRU, *options, "--model.model.d_model=16", "--match_by=num_layers", "--run_name=timed").stderr
    run = find_run("timed")
    assert run.metrics["num_params"] == pytest.approx(10500, rel=0.02) and run.tags["matched"] == "seconds 0.0105"
    assert run.tags["matched.costs"] in said.splitlines()
    stored = run.config
    assert stored["model"]["init_args"]["model"]["init_args"]["num_layers"] == 3
    assert (stored["match"], stored["to"]) == (None, None)  # or whoever fits it again would measure again
    assert run.tags["matched.costs"].startswith(f"matched {run.metrics['num_params'] * 1e-6:.4g} seconds a step (")


def test_a_budget_between_two_sizes_is_refused_before_there_is_a_run(quick: Seqlab) -> None:
    options = ("--match=state", "--to=9e3", "--model.model.mixer.num_layers=2", "--match_by=num_layers")
    (line,) = quick(*GRU, *options, code=2).stderr.splitlines()
    assert "8 gives 8,192 and 9 gives 9,216: neither" in line
    assert not Path("mlruns").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to": None}, "--match needs --to, and --to needs --match: a budget and how much of it"),
        ({"match": None}, "--match needs --to, and --to needs --match: a budget and how much of it"),
        *(({"to": to}, f"--to must be above 0, got {to:g}") for to in (-1.0, 0.0)),
        ({"match_by": "width"}, "the model has no such number"),
        ({"match_by": "tie_embeddings"}, "is True; a whole number of the model"),
        ({"match": "seconds", "resume": "auto"}, "find it first, and then give d_model"),
        ({"match": "seconds", "ckpt_path": "last"}, "find it first, and then give d_model"),
    ],
)
def test_what_cannot_be_matched_is_said(given: dict[str, Any], said: str) -> None:
    options = {"match": "params", "to": 9e3, "match_by": "d_model", "resume": None, "ckpt_path": None} | given
    config = load_short_yaml(config_path("lm/gru").read_text(encoding="utf-8"))
    config["data"]["init_args"]["path"] = "text.txt"
    config["model"]["init_args"]["model"]["init_args"]["tie_embeddings"] = True
    with pytest.raises(ValueError, match=re.escape(said)):
        matching.matched(SimpleNamespace(**options), config)


def test_seconds_are_measured_in_one_process() -> None:
    trainer = {"num_nodes": 1, "precision": None, "accumulate_grad_batches": 1, "accelerator": "cpu", "devices": 2}
    trainer |= {"gradient_clip_val": None, "gradient_clip_algorithm": None}
    with pytest.raises(ValueError, match="--match seconds measures one process; find the number with"):
        step_seconds(None, None, SimpleNamespace(trainer=SimpleNamespace(**trainer), tokens_per_step=None))
