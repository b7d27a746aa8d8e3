"""The rules against repetition: hand values, transformers' own, and texts that keep them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from contracts.subjects import decoder_subject
from seqlab.attention import Attention
from seqlab.decoding import FREE, Repetition, beam_search, generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.positions import RoPE

LOGITS = np.array([1.0, -2.0, 3.0, 0.5, -0.25])


def test_by_hand() -> None:
    assert FREE.apply(LOGITS, [0, 1, 0]) is LOGITS
    assert Repetition(penalty=2).apply(LOGITS, [0, 1, 0]).tolist() == [0.5, -4.0, 3.0, 0.5, -0.25]
    assert Repetition(ngram=2).apply(LOGITS, [2, 3, 1, 2, 4, 2]).tolist() == [1.0, -2.0, 3.0, -np.inf, -np.inf]
    assert Repetition(ngram=1).apply(LOGITS, [4, 2]).tolist() == [1.0, -2.0, -np.inf, 0.5, -np.inf]
    assert Repetition(ngram=3).apply(LOGITS, [2, 3]).tolist() == LOGITS.tolist()
    assert Repetition(ngram=1).apply(LOGITS, [0, 1, 2, 3, 4]).tolist() == LOGITS.tolist()


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


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="penalty must be above 0 and finite, got 0"):
        Repetition(penalty=0)
    with pytest.raises(ValueError, match="n-grams must be at least 1, got 0"):
        Repetition(ngram=0)
