"""The verbs as functions: the runs, bundles and errors of the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import seqlab
from cli.conftest import TINY, same_weights, write_text
from repository.source_tree import ROOT, python_blocks
from seqlab.cli import functions, main

OPTIONS: dict[str, Any] = {
    "data": {"path": "text.txt", "seq_len": 16, "batch_size": 4},
    "model": {"model": {"d_model": 16, "num_layers": 1}},
    "trainer": {"max_steps": 4, "val_check_interval": 2, "limit_val_batches": 2},
}
"""`TINY`, nested."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))


def test_a_function_fits_as_the_command_does() -> None:
    run = seqlab.fit("lm/gru", run_name="ours", experiment="tiny", **OPTIONS)
    assert main(["fit", "--config", "lm/gru", *TINY, "--run_name", "theirs"]) == 0
    assert run.status == "FINISHED" and run.name == "ours" and same_weights(run.id, "theirs")
    found = seqlab.compare(experiment="tiny").frame()
    assert {*found["run"]} == {"ours", "theirs"} and found["val/loss"][0] == run.metrics["val/loss"]
    assert found["interval"].isna().all() and [*found["rank_low"]] == [1, 2]


def test_a_sweep_is_the_commands() -> None:
    fit = {name: OPTIONS[name] for name in ("data", "model", "trainer")}
    rates = {"model.lr": [1e-3, 1e-2]}
    run = seqlab.sweep("lm/gru", rates, fit=fit, sampler="grid", name="ours")
    command = ["sweep", "--config", "lm/gru", "--vary", "model.lr=0.001,0.01", "--sampler", "grid"]
    assert main([*command, "--name", "theirs", "--", *(flag for flag in TINY if flag != "--experiment=tiny")]) == 0
    ours, theirs = (seqlab.compare([name]) for name in (run.id, "theirs"))
    assert [row.value for row in ours.rows] == [row.value for row in theirs.rows] and len(ours.rows) == 2
    assert run.metrics["val/loss"] == ours.rows[0].value
    assert "learning curves" not in repr(ours) and "ours-" in repr(ours) and "<svg" in ours._repr_html_()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trails": 3}, "trails is not a key of a sweep"),
        ({"seeds": "3"}, "seeds is '3'; accepted: int"),
        ({"sampler": "tpe"}, "needs --trials"),
        ({"sampler": "grid", "fit": {"trainer": {"max_stepz": 3}}}, "max_stepz is not an option"),
    ],
)
def test_a_sweep_refuses_wrong_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        seqlab.sweep("lm/gru", {"model.lr": [1e-3, 1e-2]}, **options)


def test_classes_and_lists_are_values() -> None:
    mixers = {"model": {"model": OPTIONS["model"]["model"] | {"mixer": ["GRU", "LSTM"], "num_layers": 2}}}
    timer = {"class_path": "Timer", "init_args": {"duration": {"minutes": 10}}}
    trainer = {"trainer": OPTIONS["trainer"] | {"callbacks": [timer]}}
    run = seqlab.fit("lm/gru", **OPTIONS | mixers | trainer)
    names = [
        mixer["class_path"].rpartition(".")[2]
        for mixer in run.config["model"]["init_args"]["model"]["init_args"]["mixer"]
    ]
    assert names == ["GRU", "LSTM"] and "Timer" in str(run.config["trainer"]["callbacks"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trainer": {"max_stepz": 3}}, "trainer.max_stepz is not an option; did you mean trainer.max_steps"),
        ({"data": {"path": "nothing.txt"}}, "nothing.txt"),
        ({"trainer": {"logger": False}, "experiment": "tiny"}, "has no run to return"),
    ],
)
def test_bad_input_is_a_value_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        seqlab.fit("lm/gru", **OPTIONS | options)


def test_a_fit_without_a_run() -> None:
    with pytest.raises(RuntimeError, match="no run to return"):
        seqlab.fit("lm/gru", **OPTIONS | {"trainer": {"fast_dev_run": True}})


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/verbs.md"])
def test_the_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fits of a few steps on a small text."""
    small = {name: OPTIONS[name] for name in ("data", "trainer")}
    monkeypatch.setattr(seqlab, "fit", lambda config, **given: functions.fit(config, **given | small), raising=False)
    exec(python_blocks(page)[0], {})
    found = seqlab.compare(experiment="mine").frame()
    assert {*found["run"]} == {"GRU", "LSTM"} and np.isfinite(found["val/loss"]).all()
    [bundle] = Path("bundles").iterdir()
    assert seqlab.verify(bundle).ok


@pytest.mark.filterwarnings("ignore")
def test_lightnings_trainer_fits_without_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [block for block in python_blocks("docs/experiments.md") if "L.Trainer" in block]
    scope: dict[str, Any] = {}
    exec(block.replace("max_steps=200", "max_steps=60").replace("seq_len=64", "path='text.txt', seq_len=16"), scope)
    assert scope["trainer"].global_step == 60 and "val/loss" in scope["trainer"].callback_metrics
    assert [*Path("logs").rglob("metrics.csv")] and not Path("mlruns").exists()


def test_the_notebook_of_the_whole_story_runs(tmp_path: Path) -> None:
    story = (ROOT / "examples/python/story.ipynb").read_text(encoding="utf-8")
    short = r"\"max_steps\": 60, \"val_check_interval\": 20"
    assert story.count(short) == 1
    read = nbformat.reads(story.replace(short, r"\"max_steps\": 4, \"val_check_interval\": 2"), as_version=4)
    NotebookClient(read, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "gru" in str(read.cells[5].outputs) and (tmp_path / "story.html").stat().st_size > 1_000_000


SCRIPT = """
import seqlab

options = {options!r}
options["trainer"] |= {{"accelerator": "cpu", "devices": 2}}
print("Loss", seqlab.fit("lm/gru", run_name="spread", **options).metrics["val/loss"])
"""


@pytest.mark.slow
def test_a_script_goes_on_once_after_a_fit_by_several_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(options=OPTIONS))
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("Loss ") == 1, done.stderr
