"""How much text tokens stand for, against the text itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from seqlab_data.text_counts import TextCounts
from seqlab_data.tokenizers import ByteTokenizer, CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer

TEXT = "The cat  sat.\n\n\tOn the äöü mat,\r\nnaïvely 猫 \u2581x\n" * 8


def _amounts(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = np.array([[tokenizer.bos_id, *tokenizer.encode(text)]], dtype=np.int64)
    return [int(amount.sum()) for amount in TextCounts(tokenizer.token_bytes).of(ids[:, :-1], ids[:, 1:])]


@pytest.mark.parametrize(
    "tokenizer", [ByteTokenizer(TEXT), CharTokenizer(TEXT), SubwordTokenizer(TEXT, vocab_size=300)]
)
def test_they_are_the_texts_whatever_the_tokenizer(tokenizer: Tokenizer) -> None:
    rng = random.Random(0)
    for _ in range(100):
        text = "".join(rng.choice(TEXT) for _ in range(rng.randrange(60)))
        # ASCII's spaces; str.split knows more.
        words = len(text.encode().split()) + text.count("\n")
        assert _amounts(tokenizer, text) == [len(text), len(text.encode()), words]


def test_a_character_counts_in_the_token_of_its_first_byte() -> None:
    tokenizer = ByteTokenizer("")
    ids = np.array([tokenizer.encode("aé€😀")])
    assert TextCounts(tokenizer.token_bytes).of(ids, ids)[0].tolist() == [[1, 1, 0, 1, 0, 0, 1, 0, 0, 0]]


def test_each_token_of_words_is_one_word() -> None:
    tokenizer = WordTokenizer("a b\n", newlines=True)
    assert _amounts(tokenizer, "a b\n\nc a") == [14, 14, 6], "c is <unk>"


def test_a_text_begins_anew_after_bos() -> None:
    counts = TextCounts(ByteTokenizer("").token_bytes)
    a, bos = (np.array([[i]]) for i in (ByteTokenizer("").encode("a")[0], Tokenizer.bos_id))
    assert [counts.of(before, a)[2].item() for before in (a, bos)] == [0, 1]
