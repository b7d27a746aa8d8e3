"""The rule for choosing a token: hand values, its edges, and the distribution that it draws from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqlab.decoding import GREEDY, Sampling, choose
from seqlab.decoding import sampling as module

LOGITS = np.array([1.0, 3.0, 2.0, 3.0, -1.0])
# Descending: tokens 1, 3, 2, 0, 4 with weights exp(0), exp(0), exp(-1), exp(-2), exp(-4).
ORDER = [1, 3, 2, 0, 4]
WEIGHTS = np.exp([0.0, 0.0, -1.0, -2.0, -4.0])


def choice_at(monkeypatch: pytest.MonkeyPatch, u: float, **options: float) -> int:
    monkeypatch.setattr(module, "uniform", lambda seed, step, row: u)
    return choose(LOGITS, Sampling(**options), step=0, row=0)  # type: ignore[arg-type]


def test_greedy_takes_the_lower_id_of_equals() -> None:
    assert choose(LOGITS, GREEDY, step=0, row=0) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_each_token_has_its_share_of_the_unit_interval(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    shares = WEIGHTS ** (1 / temperature)
    ends = np.cumsum(shares) / shares.sum()
    starts = np.concatenate([[0.0], ends[:-1]])
    for token, start, end in zip(ORDER, starts, ends, strict=True):
        assert choice_at(monkeypatch, start + 1e-9, temperature=temperature) == token
        assert choice_at(monkeypatch, end - 1e-9, temperature=temperature) == token


def test_a_point_on_a_boundary_belongs_to_the_next_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "uniform", lambda seed, step, row: 0.5)
    assert choose(np.zeros(2), Sampling(), step=0, row=0) == 1
    assert choose(np.zeros(4), Sampling(), step=0, row=0) == 2


@pytest.mark.parametrize(("top_k", "kept"), [(1, [1]), (2, [1, 3]), (3, [1, 3, 2]), (5, ORDER), (99, ORDER)])
def test_top_k(monkeypatch: pytest.MonkeyPatch, top_k: int, kept: list[int]) -> None:
    points = np.linspace(0, 1, 2000, endpoint=False)
    assert {choice_at(monkeypatch, u, top_k=top_k) for u in points} == set(kept)
    ends = np.cumsum(WEIGHTS[:top_k]) / WEIGHTS[:top_k].sum()
    assert choice_at(monkeypatch, ends[0] - 1e-9, top_k=top_k) == 1


@pytest.mark.parametrize(
    ("top_p", "kept"), [(1e-9, [1]), (0.25, [1]), (0.5, [1, 3]), (0.9, [1, 3, 2]), (0.95, [1, 3, 2, 0]), (1.0, ORDER)]
)
def test_top_p(monkeypatch: pytest.MonkeyPatch, top_p: float, kept: list[int]) -> None:
    assert {choice_at(monkeypatch, u, top_p=top_p) for u in np.linspace(0, 1, 2000, endpoint=False)} == set(kept)


def test_top_p_keeps_what_reaches_it_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "uniform", lambda seed, step, row: 1 - 2**-53)
    chosen = [choose(np.zeros(4), Sampling(top_p=p), step=0, row=0) for p in (0.25, 0.5, 0.5000001, 1.0)]
    assert chosen == [0, 1, 2, 3]


def test_top_p_counts_what_top_k_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of tokens 1 and 3 alone each has half; of all five, 0.5 needs both.
    assert choice_at(monkeypatch, 1 - 2**-53, top_k=2, top_p=0.5) == 1


def test_frequencies_are_the_softmax() -> None:
    sampling = Sampling(temperature=1.5, seed=11)
    draws = [choose(LOGITS.astype(np.float32), sampling, step=step, row=0) for step in range(5000)]
    expected = np.exp(LOGITS / 1.5) / np.exp(LOGITS / 1.5).sum() * len(draws)
    observed = np.bincount(draws, minlength=LOGITS.size)
    assert ((observed - expected) ** 2 / expected).sum() < 18.5  # chi-square, 4 degrees of freedom, 0.1%


def test_extreme_values() -> None:
    masked = np.array([-np.inf, 0.0, -np.inf])
    assert choose(masked, Sampling(), step=0, row=0) == 1
    assert choose(LOGITS, Sampling(temperature=1e-300), step=0, row=0) in (1, 3)
    assert choose(np.array([1e30, -1e30], dtype=np.float32), Sampling(), step=0, row=0) == 0


@pytest.mark.parametrize("bad", [[0.0, np.nan], [np.inf, 0.0], [-np.inf, -np.inf]])
def test_logits_that_are_no_numbers_are_refused(bad: list[float]) -> None:
    for sampling in (GREEDY, Sampling()):
        with pytest.raises(ValueError, match="largest logit is"):
            choose(np.array(bad), sampling, step=0, row=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature must be at least 0 and finite, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be at least 0 and finite, got nan"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"seed": -1}, "seed must be from 0 to"),
        ({"seed": 2**64}, "seed must be from 0 to"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


@pytest.mark.parametrize(
    ("min_p", "kept"), [(1.0, [1, 3]), (0.4, [1, 3]), (0.3, [1, 3, 2]), (0.13, [1, 3, 2, 0]), (0.01, ORDER), (0, ORDER)]
)
def test_min_p(monkeypatch: pytest.MonkeyPatch, min_p: float, kept: list[int]) -> None:
    assert {choice_at(monkeypatch, u, min_p=min_p) for u in np.linspace(0, 1, 2000, endpoint=False)} == set(kept)
