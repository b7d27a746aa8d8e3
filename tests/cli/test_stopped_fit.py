"""Ctrl-C as the user meets it: words, an exit code, and a printed command that goes on bit for bit."""

from __future__ import annotations

import re
import signal
from typing import Any

import psutil
import pytest
import torch

from cli.conftest import TINY, Seqlab, last_weights, send
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tracking.runs import find_run

FIT = ("fit", "--config", "lm/gru", *TINY, "--trainer.max_steps=6", "--trainer.val_check_interval=9")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_fit_says_how_to_go_on_and_does(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch, signum: signal.Signals
) -> None:
    with monkeypatch.context() as patch:
        send(patch, signum, 3)
        stopped = quick(*FIT, "--run_name=stopped", code=128 + signum)
    (line,) = stopped.stdout.splitlines()
    assert line.startswith(f"Stopped by {signum.name} at step 4 of 6 · last checkpoint mlruns/tiny/")
    run = find_run("stopped")
    assert (run.status, run.tags["failure"]) == ("KILLED", f"StoppedError: Stopped by {signum.name}")
    if signum != signal.SIGINT:
        return
    command = re.search(r"of step 4 · next: seqlab (resume \w{8})$", line)
    assert command is not None
    quick(*command[1].split())
    quick(*FIT, "--run_name=whole")
    assert find_run("stopped").status == "FINISHED"
    resumed, whole = last_weights("stopped"), last_weights("whole")
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    assert find_run("stopped").history("train/loss") == find_run("whole").history("train/loss")
    assert [step for step, _ in find_run("whole").history("val/loss")] == [5], "shorter than its interval"


def test_a_signal_to_all_processes_of_a_job_leaves_the_workers_to_the_fit(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = LanguageModeling.training_step

    def sends(self: LanguageModeling, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 1:
            workers = [child for child in psutil.Process().children() if child.name() != "resource_tracker"]
            assert len(workers) >= 2
            for process in (*workers, psutil.Process()):
                process.send_signal(signal.SIGUSR1)
        return train(self, batch, batch_idx)

    monkeypatch.setattr(LanguageModeling, "training_step", sends)
    workers = ("--data.num_workers=2", "--trainer.num_sanity_val_steps=1", "--trainer.val_check_interval=2")
    stopped = quick(*FIT, *workers, "--run_name=stopped", code=128 + signal.SIGUSR1)
    assert stopped.stdout.startswith("Stopped by SIGUSR1 at step 2 of 6")
    assert find_run("stopped").status == "KILLED"


def test_an_early_stop_says_so_and_why(quick: Seqlab) -> None:
    early = ("EarlyStopping", "--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.stopping_threshold=99")
    said = quick(*FIT, "--trainer.max_steps=50", "--trainer.val_check_interval=2", "--trainer.callbacks", *early).stdout
    first, second = said.splitlines()
    assert first.startswith("Stopped early at step 2 of 50: Stopping threshold reached: val/loss = ")
    assert "Signaling" not in first and second.startswith("Run ")
