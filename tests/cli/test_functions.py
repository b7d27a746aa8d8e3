"""The verbs as functions: the runs, bundles and errors of the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqlab
from cli.conftest import TINY, same_weights, write_text
from repository.source_tree import python_blocks
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
