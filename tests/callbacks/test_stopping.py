"""A fit that a signal stops leaves a checkpoint at once, and goes on from it as if it had not been stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from callbacks.test_checkpoint import fitted, recorder
from callbacks.tiny_fit import BATCHES_AN_EPOCH, FLAGS, QUICK, TinyData, TinyTask, check_goes_on, fit, fit_text
from seqlab.callbacks.checkpoint import Checkpoints, ValidateOnce
from seqlab.callbacks.max_time import MaxTime
from seqlab.callbacks.stopping import SIGNALS, StoppedError, exit_code


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Restores the signal handlers, which a fit must leave as they were."""
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    yield
    after = {signum: signal.getsignal(signum) for signum in SIGNALS}
    for signum, handler in before.items():
        signal.signal(signum, handler)
    assert after == before


class At(Callback):
    """Does something in the training or validation batch of a number, counted from 0 over all epochs."""

    def __init__(self, at: int, do: Callable[[], None], hook: str = "train") -> None:
        self.at, self.do, self.count = at, do, -1
        setattr(self, f"on_{hook}_batch_start", self._count)

    def _count(self, *args: Any) -> None:
        self.count += not args[0].sanity_checking
        if self.count == self.at and not args[0].sanity_checking:
            self.do()


def sends(at: int, *signals: int, hook: str = "train") -> At:
    def send() -> None:
        for signum in signals:
            os.kill(os.getpid(), signum)

    return At(at, send, hook)


def stop(fit: Callable[..., str], where: tuple[int, int, str]) -> None:
    at, signum, hook = where
    with pytest.raises(StoppedError) as stopped:
        fit([sends(at, signum, hook=hook)])
    assert exit_code(stopped.value) == 128 + signum


def stop_often(fit: Callable[..., str], signals: list[int]) -> None:
    """Each life goes on from where the last was stopped, in its first micro-batch or its second."""
    for life, signum in enumerate(signals):
        stop(fit, (life % 2, signum, "train"))


@pytest.mark.parametrize("name", FLAGS)
def test_stops_in_many_micro_batches(tmp_path: Path, name: str) -> None:
    check_goes_on(tmp_path, stop_often, [[*SIGNALS, *SIGNALS, signal.SIGTERM]], **FLAGS[name])


@pytest.mark.parametrize("name", QUICK)
def test_stops_around_an_epochs_end_and_in_validations(tmp_path: Path, name: str) -> None:
    stops = [(batch, signal.SIGTERM, "train") for batch in (5, BATCHES_AN_EPOCH - 1, BATCHES_AN_EPOCH)]
    check_goes_on(tmp_path, stop, [*stops, (1, signal.SIGINT, "validation")], **FLAGS[name])


def test_a_stop_with_seqlabs_own_model_and_data(tmp_path: Path) -> None:
    check_goes_on(tmp_path, stop, [(3, signal.SIGUSR1, "train")], fit_text, accumulate_grad_batches=2)


@pytest.mark.parametrize(
    ("at", "hook", "waits_for"),
    [(4, "train", ["step"]), (2, "train", ["step", "validation"]), (0, "validation", ["validation"])],
)
def test_a_signal_is_answered_at_once_with_what_a_stop_waits_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], at: int, hook: str, waits_for: list[str]
) -> None:
    """And `last` is written whatever the interval."""
    trainer = recorder(tmp_path, Checkpoints(), max_epochs=1, val_check_interval=3)
    trainer.callbacks.insert(0, sends(at, signal.SIGINT, hook=hook))
    with pytest.raises(StoppedError, match="Stopped by SIGINT"):
        trainer.fit(TinyTask(), datamodule=TinyData())
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("SIGINT")]
    assert said == [f"SIGINT: stopping after this {each}; Ctrl-C stops at once" for each in waits_for]
    assert trainer.writes[-1] == ("last", 5 if at == 4 else 3)


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, Checkpoints(), max_epochs=2)
    trainer.callbacks.insert(0, sends(2, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))
    with pytest.raises(SystemExit) as stopped:
        trainer.fit(TinyTask(), datamodule=TinyData())
    assert exit_code(stopped.value) == 130
    assert trainer.writes == []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning has ignored it since


def test_a_signal_in_the_last_step_lets_the_fit_end(tmp_path: Path) -> None:
    trainer = fitted(tmp_path, sends(2, signal.SIGINT), max_steps=3, limit_val_batches=0)
    assert trainer.global_step == 3


def test_last_is_written_by_the_clock_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two optimiser steps: batch 1 is in the middle of one."""
    clock = [0.0]
    monkeypatch.setattr("seqlab.callbacks.checkpoint.time.monotonic", lambda: sum(clock))
    waits = [At(0, lambda: clock.append(300.0)), At(3, lambda: clock.append(299.0))]
    flags: dict[str, Any] = {"max_epochs": 1, "limit_val_batches": 0, "accumulate_grad_batches": 3}
    trainer = fitted(tmp_path, *waits, checkpoints=Checkpoints(every_n_minutes=5), **flags)
    assert trainer.writes == [("last", 1), ("last", 3)]


ACROSS: dict[str, Any] = {"max_steps": 9, "max_epochs": -1, "check_val_every_n_epoch": None}


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ({**ACROSS, "val_check_interval": 10}, [9]),
        ({**ACROSS, "val_check_interval": 9}, [9]),
        ({**ACROSS, "val_check_interval": 4}, [4, 8]),
        ({"max_steps": 4}, [4]),
        ({"max_steps": 4, "accumulate_grad_batches": 2}, [4]),
        ({"max_steps": 5, "accumulate_grad_batches": 2, "check_val_every_n_epoch": 3}, [5]),
        ({"max_epochs": 2, "check_val_every_n_epoch": 3}, [14]),
        ({"max_epochs": 2, "check_val_every_n_epoch": 2}, [14]),
        ({"max_epochs": 2, "limit_val_batches": 0}, []),
    ],
)
def test_a_short_fit_validates_once_at_its_end(tmp_path: Path, flags: dict[str, Any], steps: list[int]) -> None:
    trainer = fitted(tmp_path, ValidateOnce(), scores=[5.0 - k for k in range(5)], **flags)
    assert [step for name, step in trainer.writes if name == "best"] == steps


class Slow(TinyTask):
    """A step takes 10 s, a validation 30 s."""

    now = 0.0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.now += 10
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.now += 30


@pytest.mark.parametrize(("minutes", "steps", "seconds"), [(2, 6, 120), (3, 9, 180)])
def test_the_closing_validation_is_counted(
    minutes: int, steps: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation after every 4 steps: 4 steps and a validation are 70 s."""
    task = Slow()
    monkeypatch.setattr(time, "monotonic", lambda: task.now)
    flags: dict[str, Any] = {"check_val_every_n_epoch": None, "val_check_interval": 4, "limit_val_batches": 1}
    fit(tmp_path, [MaxTime(f"00:00:0{minutes}:00")], task=task, num_sanity_val_steps=0, **flags)
    assert (task.trainer.global_step, task.now) == (steps, seconds)
