"""Lightning's finders look before a fit, which is then the one that is given what they found."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from cli.conftest import Seqlab, last_weights, write_text
from cli.test_stopped_fit import FIT
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tracking.runs import find_run

FIND = (
    "--trainer.callbacks+=LearningRateFinder",
    "--trainer.callbacks.num_training_steps=20",
    "--trainer.callbacks+=BatchSizeFinder",
    "--trainer.callbacks.max_trials=3",
)


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    write_text(tmp_path)
    return inside(tmp_path)


def config(folder: Path, run: str) -> Any:
    (path,) = folder.glob(f"mlruns/tiny/{find_run(run).id}/artifacts/config.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_fit_is_the_one_that_was_given_what_was_found(
    quick: Seqlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit; also where it was stopped, and began again by the same command."""
    said = quick(*FIT, *FIND, "--run_name=found").stderr
    found = config(tmp_path, "found")
    lr, size = found["model"]["init_args"]["lr"], found["data"]["init_args"]["batch_size"]
    assert f"LearningRateFinder: lr {lr:.4g}\n" in said and f"BatchSizeFinder: batch_size {size}\n" in said
    assert lr != 0.004 and size != 4 and found["trainer"]["callbacks"] is None
    assert not list(tmp_path.glob("**/.*.ckpt"))
    quick(*FIT, f"--model.lr={lr}", f"--data.batch_size={size}", "--run_name=given")
    given = last_weights("given")
    assert all(torch.equal(weight, given[name]) for name, weight in last_weights("found").items())
    with monkeypatch.context() as patch:
        train = LanguageModeling.training_step

        def sends(self: LanguageModeling, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 3 and self.logger is not None:  # not in the search
                os.kill(os.getpid(), signal.SIGTERM)
            return train(self, batch, batch_idx)

        patch.setattr(LanguageModeling, "training_step", sends)
        again = (*FIT, f"--data.batch_size={size}", *FIND[:2], "--run_name=again", "--resume=auto")
        stopped = quick(*again, "--trainer.callbacks.max_lr=1", code=143)
    assert "LearningRateFinder: lr" in stopped.stderr
    kept = config(tmp_path, "again")["model"]["init_args"]["lr"]
    assert f"LearningRateFinder: lr {kept:.4g}\n" in quick(*again, "--trainer.callbacks.max_lr=1").stderr
    assert config(tmp_path, "again")["model"]["init_args"]["lr"] == kept
    assert find_run("again").status == "FINISHED"


def test_what_is_no_option_is_not_looked_for(quick: Seqlab) -> None:
    finder = ("--trainer.callbacks+=LearningRateFinder", "--trainer.callbacks.attr_name=rate")
    (line,) = quick(*FIT, *finder, code=2).stderr.splitlines()
    assert line == "seqlab: LearningRateFinder is to find rate, which is no option of LanguageModeling"
