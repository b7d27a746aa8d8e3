"""The web runtime's tokenizers make of a text what Python's make of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from runtime.test_tokens import TEXT, TOKENIZERS, texts
from seqlab_data.tokenizers import SubwordTokenizer
from web.programs import answers, refusal

MORE = [
    "e\u0301",
    "\U0001f469\u200d\U0001f680",
    "\U0001f1e6\U0001f1fa",
    "\ufeff",
    "a\u0308\u0323",
    "\r\n",
    "\x1c\x1d\x1e",
]
"""Combining characters, joined emoji, a byte order mark, separators."""


def strings(dice: random.Random, number: int) -> list[str]:
    whole = [data.decode(errors="ignore") for data in texts(dice, number)]
    return [text + dice.choice(MORE) if dice.random() < 0.2 else text for text in whole]


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name != "subword"])
@pytest.mark.parametrize("number", [3000, pytest.param(250_000, marks=pytest.mark.slow)])
def test_the_same_ids(name: str, number: int, tmp_path: Path) -> None:
    """With the slow ones it is a million strings."""
    tokenizer = TOKENIZERS[name]()
    tokenizer.save(tmp_path)
    asked = strings(random.Random(f"{name} {number}"), number)
    encoded = [tokenizer.encode(text) for text in asked]
    expected = [[ids, tokenizer.decode(ids)] for ids in encoded]
    found = answers(tmp_path, asked)
    assert [pair for pair in zip(asked, found, expected, strict=True) if pair[1] != pair[2]][:3] == []
    assert len({*map(str, encoded)}) > 500


@pytest.mark.parametrize("name", ["byte", "char", "word"])
def test_a_lone_surrogate_is_refused(name: str, tmp_path: Path) -> None:
    """In a string of JavaScript; a pair of them is a character."""
    TOKENIZERS[name]().save(tmp_path)
    bad = ["\ud83d", "a b\udcff", "\ude00\ud83d c"]
    for found, place in zip(answers(tmp_path, bad), (0, 3, 0), strict=True):
        said = f"the text has a lone surrogate, which UTF-8 cannot hold, at character {place}"
        assert found == {"refused": said, "code": "invalid argument"}
    assert answers(tmp_path, ["\ud83d\ude00"]) == answers(tmp_path, ["\U0001f600"])


def test_what_is_no_tokenizer_of_this_runtime(tmp_path: Path) -> None:
    SubwordTokenizer(TEXT, vocab_size=350).save(tmp_path)
    assert refusal(tmp_path).startswith('this runtime has no tokenizer "SubwordTokenizer", give it ids; it has Byte')
    (tmp_path / "tokenizer.json").write_bytes(
        b'{"class": "CharTokenizer", "alphabet": "aa", "assets": {}, "vocab_size": 6}'
    )
    assert refusal(tmp_path) == "the tokenizer has a string twice"
