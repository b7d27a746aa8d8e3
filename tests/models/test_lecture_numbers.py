"""Numbers that courses on sequence models work out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.attention import Attention, Bidirectional
from seqlab.positions import Binary, Sinusoidal
from seqlab.recurrence import CBOW

THE_CAT_SAT = torch.tensor([[0.1, 0.4], [0.6, 0.2], [0.3, 0.65]])
PERCENT = [28.7, 37.2, 34.0]
"""Attention of "cat" to the, cat and sat: x is its own query, key and value, and scores are not scaled."""


def _plain(num_heads: int = 1, **options: Any) -> Attention:
    """In every head the two numbers of a word are its query, key and value."""
    width = 2 * num_heads
    attention = Attention(width, num_heads=num_heads, bias=False, **options)
    with torch.no_grad():
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
            projection.weight.copy_(torch.eye(width))
    return attention


def _percent(weights: Tensor) -> list[float]:
    return [round(100 * weight, 1) for weight in weights.tolist()]


def test_the_cat_sat() -> None:
    """Worked out: x_cat x = .06 + .08 = .14, .36 + .04 = .40, .18 + .13 = .31; exp: 1.150, 1.492, 1.363; over their
    sum 4.005. "cat" looks at "sat", which follows it."""
    attention = _plain(scale=1.0, pattern=Bidirectional)
    assert _percent(attention.attention_weights(THE_CAT_SAT[None])[0, 0, 1]) == PERCENT
    y, _ = attention(THE_CAT_SAT[None])
    # The average of the three by these weights.
    assert y[0, 1].tolist() == pytest.approx([0.3543, 0.4106], abs=1e-4)


def test_scores_are_divided_by_the_root_of_a_heads_width() -> None:
    """Over sqrt(d_k) = sqrt(2): .099, .283, .219, so 30.0, 36.1 and 33.9%; in two heads too, whose d_model is 4."""
    for num_heads in (1, 2):
        x = THE_CAT_SAT.repeat(1, num_heads)
        weights = _plain(num_heads, pattern=Bidirectional).attention_weights(x[None])[0, :, 1]
        assert [_percent(head) for head in weights] == [[30.0, 36.1, 33.9]] * num_heads


def test_tokens_are_rows_and_weights_stand_on_the_right() -> None:
    """Vaswani et al. 2017, section 3.2.2: Q = X W^Q."""
    attention = Attention(2, num_heads=1, bias=False, scale=1.0)
    w_q = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    with torch.no_grad():
        attention.q_proj.weight.copy_(w_q.T)
        attention.k_proj.weight.copy_(torch.eye(2))
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert attention.q_proj(x).tolist() == [[1, 2], [0, 1]]
    weights = attention.attention_weights(x[None])[0, 0, 1]
    assert torch.allclose(weights, torch.tensor([0.0, 1.0]).softmax(-1)), "the scores of row 1: q = (0, 1)"


def test_sinusoids_of_positions_1_2_and_3() -> None:
    """d_model 4: sin(p), cos(p), sin(p / 100), cos(p / 100); the cosine has no minus sign."""
    told = Sinusoidal(4, 8).embed(torch.zeros(1, 4, 4), torch.arange(4)[None])[0]
    by_hand = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8415, 0.5403, 0.0100, 0.99995],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.99955],
    ]
    for row, expected in zip(told.tolist(), by_hand, strict=True):
        assert row == pytest.approx(expected, abs=5e-5)


def test_binary_digits_of_0_to_5() -> None:
    told = Binary(3, 6).embed(torch.zeros(1, 6, 3), torch.arange(6)[None])[0]
    assert told.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]


def test_the_count_table_of_three_banana_sentences() -> None:
    """Counts by hand of each word among the two before the next word: a row is the word to come."""
    vocabulary = ["monkeys", "eat", "yellow", "bananas", "are"]
    sentences = ["monkeys eat yellow bananas", "yellow bananas are bananas", "monkeys eat bananas"]
    by_hand = {
        #          monkeys eat yellow bananas are
        "monkeys": [0, 0, 0, 0, 0],
        "eat": [2, 0, 0, 0, 0],
        "yellow": [1, 1, 0, 0, 0],
        "bananas": [1, 2, 2, 1, 1],
        "are": [0, 0, 1, 1, 0],
    }
    words = torch.eye(len(vocabulary))
    cbow = CBOW(len(vocabulary), window=2)
    with torch.no_grad():
        cbow.out_proj.weight.copy_(words)
        cbow.out_proj.bias.zero_()
    counts = {word: torch.zeros(len(vocabulary)) for word in vocabulary}
    for sentence in sentences:
        said = sentence.split()
        averages, _ = cbow(words[[vocabulary.index(word) for word in said]][None])
        for t, following in enumerate(said[1:]):
            # An average of the words read so far, at most two.
            counts[following] += averages[0, t] * min(t + 1, 2)
    assert {word: row.tolist() for word, row in counts.items()} == by_hand
