"""The first of several ranks to die says why, in a line."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest

from cli.conftest import TINY, command, write_text
from seqlab.callbacks.crash_report import FILE, CrashReport, crash_report, spoken
from seqlab.cli import fit
from seqlab.cli import lightning_cli as fit_module


def dies(rank: int, error: BaseException, processes: list[Any] | None = None, world_size: int = 2) -> None:
    launcher = SimpleNamespace(procs=processes or [])
    trainer: Any = SimpleNamespace(global_rank=rank, world_size=world_size, strategy=SimpleNamespace(launcher=launcher))
    CrashReport().setup(trainer, L.LightningModule(), "fit")
    CrashReport().on_exception(trainer, L.LightningModule(), error)


def test_the_first_error_is_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqlab.callbacks.crash_report.SECONDS", 0.0)
    with crash_report():
        assert spoken() is None
        dies(1, RuntimeError("out of\nmemory"))
        dies(0, RuntimeError("Connection closed by peer"))
        assert spoken() == "rank 1 died: RuntimeError: out of memory"
        shared = os.environ[FILE]
    assert capsys.readouterr().err == "seqlab: rank 1 died: RuntimeError: out of memory\n"
    monkeypatch.setenv(FILE, shared)  # the process that made it is gone
    dies(1, RuntimeError("Connection closed by peer"))
    assert (spoken(), capsys.readouterr().err) == ("", "")


def test_a_rank_that_a_signal_ended_is_named_and_the_others_are_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The observer, a thread, ends this process at last."""
    killed, other = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
    killed.kill()
    killed.wait()
    observers: list[Thread] = []
    signals: list[int] = []
    kill = os.kill

    def observer(**options: Any) -> Thread:
        observers.append(Thread(**options))
        return observers[-1]

    def note(pid: int, signum: int) -> None:
        if pid == os.getpid():
            signals.append(signum)
        else:
            kill(pid, signum)

    monkeypatch.setattr("seqlab.callbacks.crash_report.Thread", observer)
    monkeypatch.setattr("seqlab.callbacks.crash_report.LAST_WRITES", 0.0)
    monkeypatch.setattr("seqlab.callbacks.crash_report.SECONDS", 60.0)  # of a busy machine
    monkeypatch.setattr(os, "kill", note)
    with crash_report():
        dies(0, RuntimeError("Connection closed by peer"), processes := [killed, other])
        for thread in observers:
            thread.join(60)
    assert capsys.readouterr().err == "seqlab: rank 1 died: killed by SIGKILL\n"
    assert other.wait(60) == -signal.SIGKILL and signals == [signal.SIGKILL]
    assert processes == []  # Lightning's observer has none left to end this process for


def test_one_process_and_a_stop_say_nothing_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    with crash_report():
        dies(0, RuntimeError("alone"), world_size=1)
        dies(0, SystemExit(130))
        assert spoken() is None
    assert capsys.readouterr().err == ""


def test_the_command_adds_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        dies(1, RuntimeError("out of memory"))
        raise RuntimeError("out of memory")

    monkeypatch.setattr("seqlab.callbacks.crash_report.SECONDS", 0.0)
    monkeypatch.setattr(fit_module, "SeqlabCLI", fails)
    assert fit.lightning("fit", []) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "seqlab: rank 1 died: RuntimeError: out of memory"


DIES = """
import os
from lightning.pytorch.callbacks import Callback

class Dies(Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        rank, how = os.environ["DIES"].split()
        if trainer.global_rank == int(rank):
            if how == "9":
                os.kill(os.getpid(), 9)
            raise RuntimeError(how)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "words"), [("0 oh", "rank 0 died: RuntimeError: oh"), ("1 9", "rank 1 died: killed by SIGKILL")]
)
def test_two_processes_of_which_one_dies(tmp_path: Path, dies: str, words: str) -> None:
    write_text(tmp_path)
    (tmp_path / "dies.py").write_text(DIES)
    two = ("--trainer.devices=2", "--trainer.accelerator=cpu", "--trainer.callbacks=dies.Dies")
    said = command(tmp_path)("fit", "--config", "lm/gru", *TINY, *two, code=1, DIES=dies).stderr
    assert [line for line in said.splitlines() if "died" in line or "Error" in line] == [f"seqlab: {words}"]
