"""Ratios of times, on a clock whose answer is known."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from seqlab.attention import Attention
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab.studies.speed import (
    AGAIN,
    AT_ONCE,
    ATTENTION,
    ONE,
    PARALLEL,
    RECURRENT,
    Speed,
    all_at_once,
    matched,
    ratio,
    size_of,
    timed,
    told_of,
)


class Clock:
    """Works move it; a machine that becomes slower slows all works of a round."""

    def __init__(self) -> None:
        self.now, self.slow = 0.0, 1.0

    def work(self, seconds: float, *, last: bool = False) -> None:
        self.now += self.slow * seconds
        if last:
            self.slow *= 3

    def __call__(self) -> float:
        return self.now


def test_ratios_of_a_machine_that_becomes_slower() -> None:
    clock = Clock()
    works = {"slow": partial(clock.work, 12.0), ATTENTION: partial(clock.work, 1.0, last=True)}
    found = timed(works, 5, clock)
    assert found[ATTENTION][0] == 3.0, "the first round does not count"
    assert ratio(found, "slow", ATTENTION) == pytest.approx(12)
    found["slow"][2] *= 100
    assert ratio(found, "slow", ATTENTION) == pytest.approx(12), "one round does not decide"


def test_each_is_compared_with_attention_and_with_the_same_steps_at_once() -> None:
    found = {
        ATTENTION: [1.0],
        AGAIN: [1.0],
        "MinGRU": [2.0],
        "GRU, loop in Python": [30.0],
        AT_ONCE.format("GRU"): [6.0],
    }
    values, points = told_of(found, 512, ONE)
    assert values == {
        AGAIN: 1,
        "MinGRU, one text of 512": 2,
        "GRU, loop in Python, one text of 512": 30,
        "GRU, loop in Python, one text of 512, over all at once": 5,
    }
    assert len(points) == 4


@pytest.mark.parametrize("name", [*RECURRENT, *PARALLEL])
@pytest.mark.parametrize("width", [16, 64])
def test_parameters_are_matched(name: str, width: int) -> None:
    make, to = (RECURRENT | PARALLEL)[name], size_of(Attention(width))
    assert size_of(make(matched(make, to))) == pytest.approx(to, rel=0.1)


@pytest.mark.parametrize("make", [RNN, LSTM, GRU])
def test_all_steps_at_once_are_those_of_the_loop(make: type[RNN | LSTM | GRU]) -> None:
    """The first step of each text, from a state that is its input."""
    mixer, x = make(16), torch.randn(8, 1, 16)
    state = dict.fromkeys(mixer.state_names, x)
    torch.testing.assert_close(all_at_once(mixer, x), mixer(x, state)[0])


def test_without_a_gpu_its_scale_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert Speed().measure("gpu", 0, {}).needs.keys() == {"slower", "reason", "utilisation"}
