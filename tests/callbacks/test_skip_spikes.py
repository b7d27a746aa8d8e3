"""A step that is far larger than those before is left out, and a fit goes on exactly all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

from callbacks.tiny_fit import EndBefore, TinyData, TinyTask, tiny_trainer
from seqlab.callbacks import skip_spikes
from seqlab.callbacks.run_tracker import DivergedError, RunTracker
from seqlab.callbacks.skip_spikes import SkipSpikes


class Spiky(TinyTask):
    """Its loss is 1000 times as large at some micro-batches, counted over all epochs, or not finite at others."""

    def __init__(self, spikes: tuple[int, ...] = (), broken: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.spikes, self.broken = spikes, broken

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        place = self.trainer.fit_loop.epoch_loop.total_batch_idx
        loss = super().training_step(batch, batch_idx)
        return loss * (1000 if place in self.spikes else torch.nan if place in self.broken else 1)


class Weights(EndBefore):
    """A copy of the weights after each micro-batch, and an end before one."""

    def __init__(self, stop_at: int = -1) -> None:
        super().__init__(stop_at)
        self.seen: list[Tensor] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        self.seen.append(torch.cat([weight.detach().flatten() for weight in pl_module.parameters()]))


def fitted(folder: Path, task: TinyTask, weights: Weights, **flags: Any) -> SkipSpikes:
    spikes = SkipSpikes(5.0)
    path = folder / "checkpoints" / "last.ckpt"
    trainer = tiny_trainer(folder, [spikes, RunTracker(), weights], max_epochs=3, **flags)
    trainer.fit(task, datamodule=TinyData(), ckpt_path=str(path) if path.exists() else None)
    return spikes


@pytest.fixture(autouse=True)
def _of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_spikes, "LEAST", 3)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_spike_changes_no_weight_and_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clip: float | None
) -> None:
    weights = Weights()
    task = Spiky(spikes=(8,), broken=(12,))
    spikes = fitted(tmp_path, task, weights, gradient_clip_val=clip)
    still = [step for step in range(1, 21) if torch.equal(weights.seen[step], weights.seen[step - 1])]
    assert still == [8, 12]
    assert spikes.state_dict()["skipped"] == task.trainer.callback_metrics["train/skipped_steps"] == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said if "left out" in line] == ["step 9 is left out", "step 13 is left out"]


def test_it_goes_on_exactly(tmp_path: Path) -> None:
    """Killed just before the spike: what is usual is in the checkpoint."""
    whole, again = Weights(), Weights()
    fitted(tmp_path / "whole", Spiky(spikes=(8,)), whole)
    with pytest.raises(InterruptedError):
        fitted(tmp_path / "killed", Spiky(spikes=(8,)), Weights(stop_at=8))
    spikes = fitted(tmp_path / "killed", Spiky(spikes=(8,)), again)
    assert spikes.state_dict()["skipped"] == 1
    assert torch.equal(whole.seen[-1], again.seen[-1])


def test_steps_that_stay_larger_become_usual(tmp_path: Path) -> None:
    spikes = fitted(tmp_path, Spiky(spikes=tuple(range(8, 30))), Weights())
    assert 0 < spikes.state_dict()["skipped"] < 10


def test_a_fit_that_has_diverged_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_spikes, "WINDOW", 4)
    with pytest.raises(DivergedError, match="4 steps in a row were left out, up to step 12"):
        fitted(tmp_path, Spiky(broken=tuple(range(8, 30))), Weights())


def test_without_it_a_loss_that_is_not_finite_ends_the_fit(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, [RunTracker()], max_epochs=3)
    with pytest.raises(DivergedError, match="the training loss is nan"):
        trainer.fit(Spiky(broken=(8,)), datamodule=TinyData())


def test_a_number_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="above 1, got 1"):
        SkipSpikes(1)
