"""Numbers that courses on sequence models work out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import Attention
from seqlab.positions import Binary, Sinusoidal
from seqlab.recurrence import CBOW

THE, CAT, SAT = torch.eye(8)[:3]


def _hand_set(num_heads: int = 2) -> Attention:
    """d_model 8, d_k = 8 / num_heads: in every head each word is its own key, and "sat" asks with (0, 0.48, 0.32)."""
    attention = Attention(8, num_heads=num_heads)
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    width = 8 // num_heads
    with torch.no_grad():
        for head in range(num_heads):
            first = head * width
            attention.k_proj.weight[first : first + 3, :3] = torch.eye(3)
            attention.q_proj.weight[first : first + 3, 2] = torch.tensor([0.0, 0.48, 0.32])
        attention.v_proj.weight.copy_(torch.eye(8))
        attention.out_proj.weight.copy_(torch.eye(8))
    return attention


def _percent(weights: Tensor) -> list[int]:
    return [round(100 * weight) for weight in weights.tolist()]


def test_the_cat_sat() -> None:
    """By hand: q k = 0, 0.48, 0.32; over sqrt(4) = 2: 0, 0.24, 0.16; exp: 1, 1.271, 1.174; over their sum 3.445."""
    x = torch.stack((THE, CAT, SAT))[None]
    weights = _hand_set().attention_weights(x)[0, :, -1]
    for head in weights:
        assert _percent(head) == [29, 37, 34]
        assert head.tolist() == pytest.approx([1 / 3.445, 1.271 / 3.445, 1.174 / 3.445], abs=1e-3)
    y, _ = _hand_set()(x)
    # The first head's values are the words themselves: its output is their average by these weights.
    assert y[0, -1, :3].tolist() == pytest.approx(weights[0].tolist())


def test_any_scores_with_these_ratios_give_these_weights() -> None:
    """softmax(s) = w means s = ln w + any constant: ln 0.37 - ln 0.29 = 0.244, ln 0.34 - ln 0.29 = 0.159."""
    assert math.log(0.37 / 0.29) == pytest.approx(0.244, abs=1e-3)
    assert math.log(0.34 / 0.29) == pytest.approx(0.159, abs=1e-3)
    for constant in (0.0, -3.0, 10.0):
        scores = torch.tensor([0.29, 0.37, 0.34]).log() + constant
        assert _percent(scores.softmax(-1)) == [29, 37, 34]


def test_scores_are_divided_by_the_root_of_a_heads_width() -> None:
    """Divided by sqrt(d_model) = sqrt(8), the same scores would give 30, 36 and 34%."""
    x = torch.stack((THE, CAT, SAT))[None]
    scores = torch.tensor([0.0, 0.48, 0.32])
    assert _percent((scores / math.sqrt(8)).softmax(-1)) == [30, 36, 34]
    assert _percent(_hand_set(num_heads=2).attention_weights(x)[0, 0, -1]) == [29, 37, 34]
    one_head = _hand_set(num_heads=1).attention_weights(x)[0, 0, -1]
    assert _percent(one_head) == [30, 36, 34], "of one head d_k is d_model"


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
    """How often each word stood among the two before the next word, counted by hand: a row is the word to come."""
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
