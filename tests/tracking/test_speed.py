"""The speed of a training, and what `num_tokens` counts: the real tokens or frames that a model reads, whatever their
targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from scale.kinds import kinds, told, write_files
from seqlab.batch import IGNORE, LabelledBatch, PairBatch, TokenBatch
from seqlab.callbacks import speed as speed_module
from seqlab.callbacks.run_tracker import RunTracker
from seqlab.callbacks.speed import Speed
from trainers import quiet_trainer

REAL = torch.tensor([[True, True, True, True], [True, True, False, False]])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speed_module, "time", clock)
    return clock


@pytest.fixture
def speed(clock: Clock) -> Speed:
    return Speed()


def train(speed: Speed, clock: Clock, batches: int, seconds: float = 2.0) -> None:
    """Batches of ten tokens."""
    for _ in range(batches):
        clock.now += seconds
        speed.count(torch.tensor(10))


def test_the_first_batch_is_counted_but_not_timed(speed: Speed, clock: Clock) -> None:
    train(speed, clock, 1, seconds=60)
    assert speed.metrics() == {"num_tokens": 10, "perf/train_seconds": 0}
    train(speed, clock, 3)
    metrics = speed.metrics()
    assert (metrics["num_tokens"], metrics["perf/train_seconds"]) == (40, 6)
    assert metrics["perf/tokens_per_s"] == metrics["perf/tokens_per_s_now"] == 5
    clock.now += 1000
    assert speed.rate == 5, "the checkpoint at a fit's end is left out, as the progress bar then shows"


@pytest.mark.parametrize("before", [0, 3])
def test_validation_is_not_timed(before: int, speed: Speed, clock: Clock) -> None:
    """Nor is one before training."""
    train(speed, clock, before)
    speed.pause()
    clock.now += 1000
    speed.resume()
    train(speed, clock, 2)
    metrics = speed.metrics()
    assert (metrics["perf/train_seconds"], metrics["perf/tokens_per_s"]) == (8 if before else 2, 5)


def test_the_speed_now_is_that_since_the_last_look(speed: Speed, clock: Clock) -> None:
    train(speed, clock, 5)
    speed.metrics()
    train(speed, clock, 2, seconds=0.5)
    metrics = speed.metrics()
    assert metrics["perf/tokens_per_s_now"] == 20
    assert metrics["perf/tokens_per_s"] == pytest.approx(60 / 9)


def test_it_goes_on_where_a_checkpoint_was(speed: Speed, clock: Clock) -> None:
    train(speed, clock, 4)
    after = Speed()
    after.load_state_dict(speed.state_dict())
    clock.now += 1000
    train(after, clock, 3)
    metrics = after.metrics()
    assert (metrics["num_tokens"], metrics["perf/train_seconds"], metrics["perf/tokens_per_s_now"]) == (70, 6 + 4, 5)


def test_the_share_of_a_known_peak(speed: Speed, clock: Clock) -> None:
    speed.peak = 20
    train(speed, clock, 3)
    assert speed.metrics()["perf/mfu"] == 5 / 20
    speed.peak = None
    train(speed, clock, 1)
    assert "perf/mfu" not in speed.metrics()


def test_a_question_is_read_too_and_pads_are_not() -> None:
    targets = torch.tensor([[IGNORE, IGNORE, 3, 4, IGNORE], [1, 2, 3, 4, 5], [IGNORE] * 5])
    batch = TokenBatch(torch.ones(3, 5, dtype=torch.int64), targets, torch.ones(3))
    assert batch.pad_mask.sum(dim=1).tolist() == [4, 5, 0]
    assert batch.num_tokens == 9


def test_of_pairs_both_sides_count_and_of_labelled_frames_the_frames() -> None:
    targets = torch.tensor([[5, 6, 2], [5, 2, IGNORE]])
    assert PairBatch(REAL.long(), REAL, targets, targets, torch.arange(2)).num_tokens == 6 + 5
    zeros = torch.zeros
    for labels in (zeros(2).long(), zeros(2), zeros(2, 4).long(), zeros(2, 88), zeros(2, 4, 88)):
        assert LabelledBatch(zeros(2, 4, 7), REAL, labels).num_tokens == 6, labels.shape


@pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("name", ["language modelling", "masked", "translation", "classification", "tagging", "frames"])
def test_an_epoch_of_a_fit_counts_the_training_split(name: str, tmp_path: Path) -> None:
    """Counts by file: words, in pairs with the eos of each source and target, frames, and windows of 16 characters."""
    write_files(tmp_path)
    data, make = kinds(tmp_path)[name]
    tracker = RunTracker()
    trainer = quiet_trainer(tmp_path, max_epochs=1, limit_val_batches=0, callbacks=[tracker])
    trainer.fit(make(**told(data)), data)

    def lines(file: str) -> list[str]:
        return (tmp_path / file).read_text(encoding="utf-8").splitlines()

    windows: Any = data
    expected = {
        "translation": lambda: sum(len(side.split()) + 1 for line in lines("pairs.tsv") for side in line.split("\t")),
        "classification": lambda: sum(len(line.split()) - 1 for line in lines("labelled.txt")),
        "tagging": lambda: sum(line != "" for line in lines("tagged.conll")),
        "frames": lambda: sum(place % 9 + 1 for place in range(41)),
    }.get(name, lambda: 16 * sum(len(batch.tokens) for batch in windows.train_dataloader()))
    assert tracker.speed.metrics()["num_tokens"] == expected()
