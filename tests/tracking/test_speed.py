from __future__ import annotations

import pytest
import torch

from seqlab.callbacks import speed
from seqlab.callbacks.speed import Speed


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speed, "time", clock)
    return clock


def train(speed: Speed, clock: Clock, batches: int, seconds: float = 2.0, tokens: int = 10) -> None:
    for _ in range(batches):
        clock.now += seconds
        speed.count(torch.tensor(tokens))


def test_the_first_batch_is_counted_but_not_timed(clock: Clock) -> None:
    speed = Speed()
    train(speed, clock, 1, seconds=60)
    assert speed.metrics() == {"num_tokens": 10, "perf/train_seconds": 0}
    train(speed, clock, 3)
    metrics = speed.metrics()
    assert metrics["num_tokens"] == 40
    assert metrics["perf/train_seconds"] == 6
    assert metrics["perf/tokens_per_s"] == metrics["perf/tokens_per_s_now"] == 5


def test_validation_is_not_timed(clock: Clock) -> None:
    speed = Speed()
    train(speed, clock, 3)
    speed.pause()
    clock.now += 1000
    speed.resume()
    train(speed, clock, 2)
    metrics = speed.metrics()
    assert metrics["perf/train_seconds"] == 8
    assert metrics["perf/tokens_per_s"] == 5


def test_what_follows_the_last_batch_is_not_timed(clock: Clock) -> None:
    """The checkpoint at a fit's end is left out: the progress bar shown then agrees with the run."""
    speed = Speed()
    train(speed, clock, 3)
    assert speed.metrics()["perf/tokens_per_s"] == 5
    clock.now += 1000
    assert speed.rate == 5


def test_a_validation_before_training_changes_nothing(clock: Clock) -> None:
    speed = Speed()
    speed.pause()
    clock.now += 1000
    speed.resume()
    train(speed, clock, 2)
    assert speed.metrics()["perf/train_seconds"] == 2


def test_the_speed_now_is_that_since_the_last_look(clock: Clock) -> None:
    speed = Speed()
    train(speed, clock, 5)
    speed.metrics()
    train(speed, clock, 2, seconds=0.5)
    metrics = speed.metrics()
    assert metrics["perf/tokens_per_s_now"] == 20
    assert metrics["perf/tokens_per_s"] == pytest.approx(60 / 9)


def test_it_goes_on_where_a_checkpoint_was(clock: Clock) -> None:
    before, after = Speed(), Speed()
    train(before, clock, 4)
    after.load_state_dict(before.state_dict())
    clock.now += 1000
    train(after, clock, 3)
    metrics = after.metrics()
    assert metrics["num_tokens"] == 70
    assert metrics["perf/train_seconds"] == 6 + 4
    assert metrics["perf/tokens_per_s_now"] == 5


def test_the_share_of_a_known_peak(clock: Clock) -> None:
    speed = Speed()
    speed.peak = 20
    train(speed, clock, 3)
    assert speed.metrics()["perf/mfu"] == 5 / 20
    speed.peak = None
    train(speed, clock, 1)
    assert "perf/mfu" not in speed.metrics()
