"""The rule for choosing a token: by hand, at its edges, its distribution, against repetition; and its generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from contracts.subjects import decoder_subject
from seqlab.attention import Attention
from seqlab.decoding import FREE, GREEDY, Repetition, Sampling, beam_search, choose, generate
from seqlab.decoding import sampling as module
from seqlab.decoding.philox import Words, philox4x32, uniform
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.positions import RoPE

LOGITS = np.array([1.0, 3.0, 2.0, 3.0, -1.0])
# Descending: tokens 1, 3, 2, 0, 4 with weights exp(0), exp(0), exp(-1), exp(-2), exp(-4).
ORDER = [1, 3, 2, 0, 4]
WEIGHTS = np.exp([0.0, 0.0, -1.0, -2.0, -4.0])


def choice_at(monkeypatch: pytest.MonkeyPatch, u: float, **options: float) -> int:
    monkeypatch.setattr(module, "uniform", lambda seed, step, row: u)
    return choose(LOGITS, Sampling(**options), step=0, row=0)  # type: ignore[arg-type]


def test_greedy_takes_the_lower_id_of_equals() -> None:
    assert choose(LOGITS, GREEDY, step=0, row=0) == 1


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"temperature": 0.5}, 5),
        ({}, 5),
        ({"temperature": 2.0}, 5),
        *(({"top_k": k}, n) for k, n in [(1, 1), (2, 2), (3, 3), (5, 5), (99, 5)]),
        *(({"top_p": p}, n) for p, n in [(1e-9, 1), (0.25, 1), (0.5, 2), (0.9, 3), (0.95, 4), (1.0, 5)]),
        *(({"min_p": p}, n) for p, n in [(1.0, 2), (0.4, 2), (0.3, 3), (0.13, 4), (0.01, 5), (0, 5)]),
        # Of tokens 1 and 3 alone each has half; of all five, 0.5 needs both.
        ({"top_k": 2, "top_p": 0.5}, 1),
    ],
    ids=str,
)
def test_tokens_share_the_interval(monkeypatch: pytest.MonkeyPatch, options: dict[str, float], kept: int) -> None:
    shares = WEIGHTS[:kept] ** (1 / options.get("temperature", 1.0))
    ends = np.cumsum(shares) / shares.sum()
    starts = np.concatenate([[0.0], ends[:-1]])
    for token, start, end in zip(ORDER, starts, ends, strict=False):
        assert choice_at(monkeypatch, start + 1e-9, **options) == token
        assert choice_at(monkeypatch, end - 1e-9, **options) == token


def test_a_point_on_a_boundary_belongs_to_the_next_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "uniform", lambda seed, step, row: 0.5)
    assert choose(np.zeros(2), Sampling(), step=0, row=0) == 1
    assert choose(np.zeros(4), Sampling(), step=0, row=0) == 2


def test_top_p_keeps_what_reaches_it_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "uniform", lambda seed, step, row: 1 - 2**-53)
    chosen = [choose(np.zeros(4), Sampling(top_p=p), step=0, row=0) for p in (0.25, 0.5, 0.5000001, 1.0)]
    assert chosen == [0, 1, 2, 3]


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
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_philox4x32_10(counter: Words, key: tuple[int, int], expected: Words) -> None:
    assert philox4x32(counter, key) == expected


def test_uniform_places_seed_step_and_row_and_takes_53_bits() -> None:
    w0, w1, _, _ = philox4x32((7, 3, 0, 0), (0x89ABCDEF, 0x01234567))
    assert uniform(0x0123456789ABCDEF, 7, 3) == ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53


SCORES = np.array([1.0, -2.0, 3.0, 0.5, -0.25])


def test_repetition_by_hand() -> None:
    assert FREE.apply(SCORES, [0, 1, 0]) is SCORES
    assert Repetition(penalty=2, ngram=2).apply(SCORES, [2, 0, 1, 0]).tolist() == [0.5, -np.inf, 1.5, 0.5, -0.25]
    assert Repetition(ngram=1).apply(SCORES, [0, 1, 2, 3, 4]).tolist() == SCORES.tolist()


@given(st.lists(st.integers(0, 7), min_size=1, max_size=30), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=60)
def test_as_transformers_does(text: list[int], ngram: int, seed: int) -> None:
    logits = np.random.default_rng(seed).normal(size=9)
    read = torch.tensor([text])
    expected = RepetitionPenaltyLogitsProcessor(1.7)(read, torch.tensor(logits)[None])
    expected = NoRepeatNGramLogitsProcessor(ngram)(read, expected)
    found = Repetition(penalty=1.7, ngram=ngram).apply(logits, text)
    np.testing.assert_allclose(found, expected[0].numpy(), rtol=1e-15)


def ngrams(text: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(text[start : start + n]) for start in range(len(text) - n + 1)]


def test_texts_have_no_sequence_twice_with_one_beam_or_many() -> None:
    decoder = TorchDecoder(decoder_subject(Attention, RoPE).module)
    prompts = [[1, 2, 3, 1], [4]]
    (free, _), blocking = generate(decoder, prompts, max_new_tokens=25), Repetition(ngram=2)
    assert len(set(ngrams([*prompts[0], *free], 2))) < len(ngrams([*prompts[0], *free], 2))
    greedy = generate(decoder, prompts, max_new_tokens=25, repetition=blocking)
    alone = [generate(decoder, [prompt], max_new_tokens=25, repetition=blocking)[0] for prompt in prompts]
    one, many = (beam_search(decoder, prompts, beams=beams, max_new_tokens=25, repetition=blocking) for beams in (1, 4))
    assert greedy == alone == [best.tokens for [best] in one]
    for found in (greedy, [best.tokens for best, *_ in many]):
        for prompt, tokens in zip(prompts, found, strict=True):
            pairs = ngrams([*prompt, *tokens], 2)
            assert len(set(pairs)) == len(pairs)


def test_bad_rules_against_repetition() -> None:
    with pytest.raises(ValueError, match="penalty must be above 0 and finite, got 0"):
        Repetition(penalty=0)
    with pytest.raises(ValueError, match="n-grams must be at least 1, got 0"):
        Repetition(ngram=0)
