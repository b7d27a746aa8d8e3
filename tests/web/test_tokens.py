"""The web runtime's tokenizers make of a text what Python's make of it."""

from __future__ import annotations

import io
import json
import random
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer

from once import SEED
from runtime.pretrained_tokenizers import MORE, PRETRAINED, TEXT, assigned
from runtime.test_tokens import TOKENIZERS as OWN
from runtime.test_tokens import texts
from seqlab_data.tokenizers import SubwordTokenizer, Tokenizer
from web.programs import answers, refusal

TOKENIZERS = OWN | PRETRAINED


@cache
def tokenizer_of(name: str) -> Tokenizer:
    return TOKENIZERS[name]()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_same_ids(name: str, tmp_path: Path) -> None:
    dice, tokenizer = random.Random(f"{name} {SEED}"), tokenizer_of(name)
    tokenizer.save(tmp_path)
    asked = [some.decode(errors="ignore") + dice.choice(["", "", "", dice.choice(MORE)]) for some in texts(dice, 2000)]
    if name in PRETRAINED:
        asked = [assigned(text) for text in asked]
    encoded = [tokenizer.encode(text) for text in asked]
    expected = [[ids, tokenizer.decode(ids)] for ids in encoded]
    found = answers(tmp_path, asked)
    assert [pair for pair in zip(asked, found, expected, strict=True) if pair[1] != pair[2]][:3] == []
    assert len({*map(str, encoded)}) > 500


@pytest.mark.parametrize("name", ["byte", "char", "word", "subword", "llama3"])
def test_a_lone_surrogate_is_refused(name: str, tmp_path: Path) -> None:
    """In a string of JavaScript; a pair of them is a character."""
    tokenizer_of(name).save(tmp_path)
    *refused, pair, whole = answers(tmp_path, ["\ud83d", "a b\udcff", "\ude00\ud83d c", "\ud83d\ude00", "\U0001f600"])
    said = "the text has a lone surrogate, which UTF-8 cannot hold, at character "
    assert refused == [{"refused": f"{said}{place}", "code": "invalid argument"} for place in (0, 3, 0)]
    assert pair == whole


def test_a_long_text_in_subwords(tmp_path: Path) -> None:
    """One line without a space, too: what is merged first is found without looking at all pairs each time."""
    text = files("pydoc_data").joinpath("topics.py").read_text(encoding="utf-8")
    tokenizer = SubwordTokenizer(text, vocab_size=1000)
    tokenizer.save(tmp_path)
    asked = [text, "".join(text.split())[:100_000], " " * 100_000, "ab" * 50_000]
    assert answers(tmp_path, asked) == [[ids := tokenizer.encode(one), tokenizer.decode(ids)] for one in asked]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_subwords_of_another_kind_are_refused(model_type: str, tmp_path: Path) -> None:
    """Byte pairs that normalise the text, and pieces that are not of pairs."""
    other = io.BytesIO()
    options: dict[str, Any] = {"byte_fallback": True, "hard_vocab_limit": model_type == "bpe", "minloglevel": 2}
    if model_type == "unigram":
        options |= {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False}
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n")), model_writer=other, vocab_size=350, model_type=model_type, **options
    )
    save_with(other.getvalue(), tmp_path)
    assert refusal(tmp_path).startswith("this runtime reads only byte-pair subwords, with all bytes and without normal")


def test_what_is_no_tokenizer_of_this_runtime(tmp_path: Path) -> None:
    save_with(b"\x0a\xff\xff", tmp_path)
    assert refusal(tmp_path) == "its tokenizer.model is not a sentencepiece model"
    (tmp_path / "tokenizer.model").write_bytes(b"another")
    assert refusal(tmp_path) == "tokenizer.model is damaged: its sha256 is not the one in tokenizer.json"
    description = {"class": "OwnTokenizer", "alphabet": "aa", "assets": {}, "vocab_size": 6}
    for name, said in {
        "OwnTokenizer": 'this runtime has no tokenizer "OwnTokenizer", give it ids; it has ByteTokenizer, Char',
        "CharTokenizer": "the tokenizer has a string twice",
        "PretrainedTokenizer": "tokenizer.json names no pretrained.json",
    }.items():
        (tmp_path / "tokenizer.json").write_text(json.dumps(description | {"class": name}))
        assert refusal(tmp_path).startswith(said)


def test_what_is_no_byte_level_tokenizer(tmp_path: Path) -> None:
    tokenizer_of("gpt2").save(tmp_path)
    right = json.loads((tmp_path / "pretrained.json").read_text(encoding="utf-8"))
    with_vocab = lambda vocab: right | {"model": right["model"] | {"vocab": vocab}}  # noqa: E731
    for wrong, said in (
        ([], "its pretrained.json is not a byte-level BPE"),
        (right | {"pre_tokenizer": {"type": "Whitespace"}}, "its pretrained.json is not a byte-level BPE"),
        (with_vocab({"a": 2**40}), "an id in its pretrained.json is not from 0 to"),
        (with_vocab({"\u2581": 3}), 'its pretrained.json has the letter "\u2581"'),
    ):
        put(tmp_path, "pretrained.json", json.dumps(wrong).encode())
        assert refusal(tmp_path).startswith(said)


def save_with(model: bytes, folder: Path) -> None:
    """A SubwordTokenizer that says that its model is this one."""
    tokenizer_of("subword").save(folder)
    put(folder, "tokenizer.model", model)


def put(folder: Path, name: str, data: bytes) -> None:
    """Replaces a file of a tokenizer, and its hash."""
    (folder / name).write_bytes(data)
    description = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    description["assets"][name] = sha256(data).hexdigest()
    (folder / "tokenizer.json").write_text(json.dumps(description))
