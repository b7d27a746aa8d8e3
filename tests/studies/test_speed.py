"""Ratios of times, on a clock whose answer is known."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from seqlab.attention import Attention, LinearAttention
from seqlab.recurrence import LSTM, MinGRU
from seqlab.studies.speed import (
    AGAIN,
    ATTENTION,
    OTHERS,
    PARALLEL,
    RECURRENT,
    Speed,
    matched,
    ratio,
    size_of,
    stepped,
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


def test_steps_are_compared_with_the_same_in_parallel() -> None:
    found = {ATTENTION: [1.0], AGAIN: [1.0], "MinGRU": [2.0], "MinGRU by steps": [30.0]}
    values, _ = told_of(found, 512)
    assert values == {"attention, 512 tokens": 1, AGAIN: 1, "MinGRU, 512 tokens": 2, "MinGRU by steps, 512 tokens": 15}


@pytest.mark.parametrize("name", [*RECURRENT, *PARALLEL, *OTHERS])
@pytest.mark.parametrize("width", [16, 64])
def test_parameters_are_matched(name: str, width: int) -> None:
    make, to = (RECURRENT | PARALLEL | OTHERS)[name], size_of(Attention(width))
    assert size_of(make(matched(make, to))) == pytest.approx(to, rel=0.1)


@pytest.mark.parametrize("make", [MinGRU, LinearAttention, LSTM])
def test_steps_give_what_the_whole_gives(make: type[MinGRU | LinearAttention | LSTM]) -> None:
    mixer, x = make(16), torch.randn(2, 20, 16)
    torch.testing.assert_close(stepped(mixer, x), mixer(x)[0], atol=1e-4, rtol=1e-4)


def test_without_a_gpu_its_scale_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert Speed().measure("gpu", 0, {}).needs.keys() == {"slower", "reason", "utilisation"}
