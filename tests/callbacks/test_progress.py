"""Progress that a fit shows while it runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from callbacks.tiny_fit import fit
from seqlab.batch import TokenBatch
from seqlab.callbacks import progress, speed
from seqlab.callbacks.progress import Bars, FitProgress, Lines, _clock
from seqlab.callbacks.run_tracker import RunTracker
from seqlab.callbacks.speed import Speed
from trainers import loader


class Shown(Lines):
    """Records what is shown, always being due."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[str, int, float, str]] = []
        self.finished: list[str] = []
        self.closed = 0

    def due(self) -> bool:
        return True

    def show(self, name: str, done: int, total: float, text: str) -> None:
        self.shown.append((name, done, total, text))

    def finish(self, name: str) -> None:
        self.finished.append(name)

    def close(self) -> None:
        self.closed += 1

    def counts(self, name: str) -> list[tuple[int, float]]:
        return [(done, total) for shown, done, total, _ in self.shown if shown == name]

    def texts(self) -> list[str]:
        return [text for name, _, _, text in self.shown if name == "fit"]


class Task(L.LightningModule):
    """Does something in its steps and after them."""

    def __init__(self, train: Any = None, validate: Any = None, after: Any = None) -> None:
        super().__init__()
        self.model = nn.Linear(1, 1)
        self.train_too, self.validate_too, self.after = train, validate, after

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        if self.train_too:
            self.train_too(batch_idx)
        loss: Tensor = self.model(batch.tokens.float()[..., None]).square().mean()
        self.log("train/loss", torch.tensor(1.25 + batch_idx), prog_bar=True)
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        if self.after:
            self.after(self.trainer)

    def validation_step(self, batch: TokenBatch, batch_idx: int) -> None:
        if self.validate_too:
            self.validate_too(batch_idx)
        self.log("val/loss", torch.tensor(2.5), prog_bar=True, batch_size=1)

    def test_step(self, batch: TokenBatch, batch_idx: int) -> None:
        """Nothing to compute."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self) -> DataLoader[TokenBatch]:
        tokens = torch.ones(2, 5, dtype=torch.int64)
        return loader([TokenBatch(tokens, tokens, torch.tensor([5, 5]))] * 6)

    val_dataloader = test_dataloader = train_dataloader


def trainer(**flags: Any) -> Any:
    flags |= {"logger": False, "enable_checkpointing": False, "enable_model_summary": False, "accelerator": "cpu"}
    return L.Trainer(callbacks=[FitProgress(meter := Speed()), RunTracker(speed=meter)], **flags)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    recorder = Shown()
    monkeypatch.setattr(progress, "display", lambda: recorder)
    return recorder


def test_a_fit_is_counted_in_optimiser_steps_over_all_epochs(shown: Shown) -> None:
    trainer(max_epochs=2, accumulate_grad_batches=2, limit_val_batches=0).fit(Task())
    steps = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert shown.counts("fit")[: len(steps)] == [(step, 6) for step in steps]
    assert shown.counts("fit")[-1] == (6, 6)
    assert shown.closed == 1


def test_metrics_speed_and_time_left_are_told_and_validations_have_their_own_count(shown: Shown) -> None:
    """But for the sanity check."""
    trainer(max_epochs=2, limit_val_batches=3).fit(Task())
    texts = shown.texts()
    assert texts[0].startswith("loss 1.25")
    assert re.fullmatch(r"loss 5\.25 · val/loss 2\.5 · [\d.]+[kM]? tokens/s · 0:\d\d left", texts[10])
    assert "left" not in texts[-1]
    assert shown.counts("validate") == [(1, 3), (2, 3), (3, 3)] * 2
    assert "validate" in shown.finished


def test_what_comes_once_with_the_first_step_is_not_in_the_time_left(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: list[float] = []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: sum(clock)))
    task = Task(lambda batch: clock.append(1), after=lambda trainer: clock.append(100 * (trainer.global_step == 1)))
    trainer(max_epochs=1, limit_val_batches=0).fit(task)
    assert [text[-9:] for text in shown.texts()[1:5]] == [f"0:0{seconds} left" for seconds in (4, 3, 2, 1)]


def test_the_speed_is_the_one_that_the_run_has(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of ten tokens: one of a minute, which is not timed, then some of ever more seconds."""
    clock: list[float] = []
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: sum(clock)))
    task = Task(lambda batch: clock.append(0.01 * 2**batch if batch else 60.0), lambda batch: clock.append(1000))
    fitted = trainer(max_epochs=1, limit_val_batches=1)
    fitted.fit(task)
    assert shown.shown[-1][3].endswith(" · 81 tokens/s")
    (tracker,) = [callback for callback in fitted.callbacks if isinstance(callback, RunTracker)]
    assert tracker.speed.rate == pytest.approx(5 * 10 / (0.02 + 0.04 + 0.08 + 0.16 + 0.32))


def test_a_test_is_counted(shown: Shown) -> None:
    trainer().test(Task(), verbose=False)
    assert [(done, total) for _, done, total, _ in shown.shown] == [(k, 6) for k in range(1, 7)]
    assert shown.closed == 1


def test_a_resumed_fit_counts_from_where_it_was(shown: Shown, tmp_path: Path) -> None:
    fit(tmp_path, max_steps=4, limit_val_batches=0)
    fit(tmp_path, [FitProgress(Speed())], enable_progress_bar=True, max_steps=6, limit_val_batches=0)
    assert [done for _, done, _, _ in shown.shown] == [5, 6, 6]


def test_a_failure_closes_the_display(shown: Shown) -> None:
    with pytest.raises(ZeroDivisionError):
        trainer(max_epochs=1).fit(Task(lambda batch: 1 / (2 - batch)))
    assert shown.closed == 1


def test_without_an_end_there_is_no_time_left(shown: Shown) -> None:
    task = Task(after=lambda trainer: setattr(trainer, "should_stop", True))
    trainer(max_epochs=-1, limit_val_batches=0).fit(task)
    assert {total for _, total in shown.counts("fit")} == {float("inf")}
    assert not any("left" in text for text in shown.texts())


def test_lines_have_no_control_characters(capfd: pytest.CaptureFixture[str]) -> None:
    """Standard error is not a terminal here, so that lines are chosen, and stdout is left to results."""
    assert isinstance(progress.display(), Lines)
    trainer(max_epochs=1, limit_val_batches=0).fit(Task())
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"fit 6/6 · loss 6\.25 · \S+ tokens/s\n", err)


def test_bars_are_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    bars = progress.display()
    assert isinstance(bars, Bars)
    bars.show("fit", 123, 4000, "loss 2.031 · val/loss 2.013 · 125k tokens/s · 1:02:03 left")
    bars.show("validate", 3, float("inf"), "")
    bars.finish("validate")
    bars.finish("validate")
    bars.close()
    out, err = capsys.readouterr()
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", err).replace("\r", "\n").splitlines()
    first = next(line for line in lines if line.startswith("fit"))
    assert re.fullmatch(r"fit +123/4000 \S+ loss 2\.031 · val/loss 2\.013 · 125k tokens/s · 1:02:03 left *", first)
    assert any(line.startswith("validate") for line in lines)
    assert out == ""


def test_a_display_is_due_once_in_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    lines, due = Lines(), []
    for now in (110.0, 119.9, 120.0, 120.1, 139.0, 141.0):  # noqa: B007
        due.append(lines.due())
    assert due == [False, False, True, False, False, True]


def test_clock() -> None:
    assert [_clock(seconds) for seconds in (0.4, 59.6, 187, 3723)] == ["0:00", "1:00", "3:07", "1:02:03"]
