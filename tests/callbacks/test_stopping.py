"""A fit that a signal stops leaves a checkpoint at once, and goes on from it as if it had not been stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from callbacks.test_checkpoint import Scored, recorder
from callbacks.test_exact_resume import FLAGS, QUICK, check_equals_uninterrupted
from callbacks.tiny_fit import BATCHES_AN_EPOCH, TinyData, TinyTask, fit, fit_text
from seqlab.callbacks.checkpoint import Checkpoints, ValidateOnce
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


class Sends(Callback):
    """Sends itself signals in the training or validation batch of a number, counted from 0 over all epochs."""

    def __init__(self, at: int, *signals: int, hook: str = "train") -> None:
        self.at, self.signals, self.count = at, signals, -1
        setattr(self, f"on_{hook}_batch_start", self._send)

    def _send(self, *args: Any) -> None:
        if getattr(args[0], "sanity_checking", False):
            return
        self.count += 1
        if self.count == self.at:
            for signum in self.signals:
                os.kill(os.getpid(), signum)


def check_stops(tmp_path: Path, sends: list[Sends], fit: Callable[..., str] = fit, **kwargs: Any) -> None:
    whole_weights = fit(tmp_path / "whole", **kwargs)
    for number, each in enumerate(sends):
        with pytest.raises(StoppedError) as stopped:
            fit(tmp_path / f"{number}", [each], **kwargs)
        assert exit_code(stopped.value) == 128 + each.signals[0]
        weights = fit(tmp_path / f"{number}", **kwargs)
        check_equals_uninterrupted(tmp_path / f"{number}", weights, tmp_path / "whole", whole_weights)


@pytest.mark.parametrize("name", QUICK)
def test_stops_around_an_epochs_end_and_in_validations(tmp_path: Path, name: str) -> None:
    at = zip((0, 5, BATCHES_AN_EPOCH - 1, BATCHES_AN_EPOCH, 9), [*SIGNALS, *SIGNALS], strict=False)
    sends = [Sends(batch, signum) for batch, signum in at]
    check_stops(tmp_path, [*sends, Sends(1, signal.SIGINT, hook="validation")], **FLAGS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAGS)
def test_stops_at_every_micro_batch(tmp_path: Path, name: str) -> None:
    check_stops(tmp_path, [Sends(batch, signal.SIGTERM) for batch in range(10)], **FLAGS[name])


def test_a_stop_with_seqlabs_own_model_and_data(tmp_path: Path) -> None:
    check_stops(tmp_path, [Sends(3, signal.SIGUSR1)], fit_text, accumulate_grad_batches=2)


def test_a_stop_writes_at_once_whatever_the_interval(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, Checkpoints(), max_epochs=2, limit_val_batches=0)
    trainer.callbacks.insert(0, Sends(2, signal.SIGINT))
    with pytest.raises(StoppedError, match="Stopped by SIGINT"):
        trainer.fit(TinyTask(), datamodule=TinyData())
    assert trainer.writes == [("last", 3)]


@pytest.mark.parametrize(
    ("sends", "waits_for"),
    [
        (Sends(4, signal.SIGINT), ["step"]),
        (Sends(2, signal.SIGINT), ["step", "validation"]),
        (Sends(0, signal.SIGINT, hook="validation"), ["validation"]),
    ],
)
def test_a_signal_is_answered_at_once_with_what_a_stop_waits_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], sends: Sends, waits_for: list[str]
) -> None:
    trainer = recorder(tmp_path, Checkpoints(), max_epochs=1, val_check_interval=3)
    trainer.callbacks.insert(0, sends)
    with pytest.raises(StoppedError):
        trainer.fit(TinyTask(), datamodule=TinyData())
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("SIGINT")]
    assert said == [f"SIGINT: stopping after this {each}; Ctrl-C stops at once" for each in waits_for]


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, Checkpoints(), max_epochs=2)
    trainer.callbacks.insert(0, Sends(2, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT))
    with pytest.raises(SystemExit) as stopped:
        trainer.fit(TinyTask(), datamodule=TinyData())
    assert exit_code(stopped.value) == 130
    assert trainer.writes == []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning has ignored it since


def test_a_signal_in_the_last_step_lets_the_fit_end(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, Checkpoints(), max_steps=3, limit_val_batches=0)
    trainer.callbacks.insert(0, Sends(2, signal.SIGINT))
    trainer.fit(TinyTask(), datamodule=TinyData())
    assert trainer.global_step == 3


class At(Callback):
    """Does something in one batch."""

    def __init__(self, batch: int, action: Callable[[], None]) -> None:
        self.batch, self.action = batch, action

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Tensor, batch_idx: int) -> None:
        if batch_idx == self.batch:
            self.action()


def test_last_is_written_by_the_clock_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two optimiser steps: batch 1 is in the middle of one."""
    clock = [0.0]
    monkeypatch.setattr("seqlab.callbacks.checkpoint.time.monotonic", lambda: clock[0])
    trainer = recorder(
        tmp_path, Checkpoints(every_n_minutes=5), max_epochs=1, limit_val_batches=0, accumulate_grad_batches=3
    )

    def wait(seconds: float) -> None:
        clock[0] += seconds

    trainer.callbacks += [At(0, lambda: wait(300.0)), At(3, lambda: wait(299.0))]
    trainer.fit(TinyTask(), datamodule=TinyData())
    assert trainer.writes == [("last", 1), ("last", 3)]


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ({"max_steps": 9, "max_epochs": -1, "check_val_every_n_epoch": None, "val_check_interval": 10}, [9]),
        ({"max_steps": 9, "max_epochs": -1, "check_val_every_n_epoch": None, "val_check_interval": 9}, [9]),
        ({"max_steps": 9, "max_epochs": -1, "check_val_every_n_epoch": None, "val_check_interval": 4}, [4, 8]),
        ({"max_steps": 4}, [4]),
        ({"max_steps": 4, "accumulate_grad_batches": 2}, [4]),
        ({"max_steps": 5, "accumulate_grad_batches": 2, "check_val_every_n_epoch": 3}, [5]),
        ({"max_epochs": 2, "check_val_every_n_epoch": 3}, [14]),
        ({"max_epochs": 2, "check_val_every_n_epoch": 2}, [14]),
        ({"max_epochs": 2, "limit_val_batches": 0}, []),
    ],
)
def test_a_short_fit_validates_once_at_its_end(tmp_path: Path, flags: dict[str, Any], steps: list[int]) -> None:
    trainer = recorder(tmp_path, Checkpoints(), **flags)
    trainer.callbacks.insert(0, ValidateOnce())
    trainer.fit(Scored([5.0 - k for k in range(5)]), datamodule=TinyData())
    assert [step for name, step in trainer.writes if name == "best"] == steps


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_a_time_that_never_comes_is_refused(minutes: float) -> None:
    with pytest.raises(ValueError, match="--checkpoint_minutes must be above 0"):
        Checkpoints(every_n_minutes=minutes)
