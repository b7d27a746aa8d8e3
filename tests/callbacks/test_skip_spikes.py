"""A step that is far larger than those before is left out, and a fit goes on exactly all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from callbacks.tiny_fit import KilledError, TinyTask, Weights, fit
from seqlab.callbacks import skip_spikes
from seqlab.callbacks.run_tracker import DivergedError, RunTracker
from seqlab.callbacks.skip_spikes import SkipSpikes


class Spiky(TinyTask):
    """Its loss is 1000 times as large at some micro-batches, counted over all epochs, or not finite at others."""

    def __init__(self, *spikes: int, broken: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.spikes, self.broken = spikes, broken

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        place = self.trainer.fit_loop.epoch_loop.total_batch_idx
        loss = super().training_step(batch, batch_idx)
        return loss * (1000 if place in self.spikes else torch.nan if place in self.broken else 1)


def skipped(folder: Path, task: TinyTask, weights: Weights | None = None, **flags: Any) -> int:
    """The number of steps that a fit leaves out."""
    spikes = SkipSpikes(5.0)
    fit(folder, [spikes, RunTracker(), weights or Weights()], task=task, **flags)
    found: int = spikes.state_dict()["skipped"]
    return found


@pytest.fixture(autouse=True)
def _of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_spikes, "LEAST", 3)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_spike_changes_no_weight_and_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clip: float | None
) -> None:
    weights, task = Weights(), Spiky(8, broken=(12,))
    assert skipped(tmp_path, task, weights, gradient_clip_val=clip) == 2
    assert task.trainer.callback_metrics["train/skipped_steps"] == 2
    still = [step for step in range(1, 21) if torch.equal(weights.trained[step], weights.trained[step - 1])]
    assert still == [8, 12]
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said if "skipped" in line] == ["step 9 is skipped", "step 13 is skipped"]


def test_it_goes_on_exactly(tmp_path: Path) -> None:
    """Killed just before the spike: what is usual is in the checkpoint."""
    whole, again = Weights(), Weights()
    skipped(tmp_path / "whole", Spiky(8), whole)
    with pytest.raises(KilledError):
        skipped(tmp_path / "killed", Spiky(8), Weights(stop_at=7))
    assert skipped(tmp_path / "killed", Spiky(8), again) == 1
    assert torch.equal(whole.trained[-1], again.trained[-1])


def test_steps_that_stay_larger_become_usual(tmp_path: Path) -> None:
    assert 0 < skipped(tmp_path, Spiky(*range(8, 30))) < 10


def test_a_fit_that_has_diverged_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip_spikes, "WINDOW", 4)
    with pytest.raises(DivergedError, match="4 consecutive steps were skipped, up to step 12"):
        skipped(tmp_path, Spiky(broken=tuple(range(8, 30))))
    with pytest.raises(DivergedError, match="the training loss is nan"):
        fit(tmp_path / "without", [RunTracker()], task=Spiky(broken=(8,)))
