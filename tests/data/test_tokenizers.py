"""Laws of every tokenizer, and what is particular to each."""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from data.helpers import refused
from seqlab_data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
    tokenizer_from_dict,
)
from seqlab_data.tokenizers import subword as subword_module
from seqlab_data.tokenizers import words as words_module

CORPUS = "It was the best of times, it was the worst of times,\nit was the age of wisdom — é, ß.\n\n  The end.\t" * 20
NASTY = [
    *(" the", "\0", "\n", "\n\n", "\r\n", " ", "   a  b ", "\t", "\ufeff", "\ufffd", "e\u0301", "\U0001f600"),
    *("\u2581", "a\u2581b \u2581\u2581", "\u2585", " \u2047 ", "<s></s><unk><pad>", "<0x41><0x0A>", "\u3000\xa0\u2028"),
]
texts = st.lists(st.text(max_size=5) | st.sampled_from(NASTY), max_size=20).map("".join)
"""Texts over every plane of Unicode, mixed with pieces that a tokenizer may take for something else."""
TEXT = "the cat saw the dog\n the  dog\tran é ."


@pytest.fixture(scope="module")
def subword() -> SubwordTokenizer:
    return SubwordTokenizer(CORPUS, vocab_size=340)


@pytest.fixture(scope="module", params=["byte", "char", "subword", "word"])
def tokenizer(request: pytest.FixtureRequest, subword: SubwordTokenizer) -> Tokenizer:
    made = {"byte": ByteTokenizer(), "char": CharTokenizer(CORPUS), "word": WordTokenizer(f"{TEXT} a b aé")}
    return made.get(request.param, subword)


@settings(max_examples=300)
@given(text=texts)
@example(text=CORPUS)
def test_decode_inverts_encode(tokenizer: Tokenizer, text: str) -> None:
    if isinstance(tokenizer, CharTokenizer | WordTokenizer):
        tokenizer = type(tokenizer)(text)  # that knows all of it
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == (" ".join(text.split()) if isinstance(tokenizer, WordTokenizer) else text)
    assert all(2 < i < tokenizer.vocab_size for i in ids)


def test_specials_are_distinct_and_decode_to_nothing(tokenizer: Tokenizer) -> None:
    specials = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id]
    assert len(set(specials)) == 3
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    written = tokenizer.decode([specials[1], *a, specials[2], *b, specials[0]])
    assert written == ("a b" if isinstance(tokenizer, WordTokenizer) else "ab")


@settings(max_examples=300)
@given(numbers=st.lists(st.integers(0, 10**6)))
def test_streaming_any_ids_gives_what_decode_gives(tokenizer: Tokenizer, numbers: list[int]) -> None:
    ids, stream = [number % tokenizer.vocab_size for number in numbers], tokenizer.stream_decoder()
    assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)


def test_what_is_no_id_and_no_text_is_refused(tokenizer: Tokenizer) -> None:
    for wrong in (-1, tokenizer.vocab_size, 10**6):
        with refused(rf"token id {wrong} .* 0 to {tokenizer.vocab_size - 1}"):
            tokenizer.decode([3, wrong])
    with refused("surrogates not allowed"):
        tokenizer.encode("a\ud800")


def test_what_is_not_utf8_is_refused_with_its_offset(tokenizer: Tokenizer) -> None:
    """Refuses bytes, and the text Python makes of them on a command line; a byte tokenizer takes both."""
    data = "aé".encode() + b"\xe2\x82"
    as_text = data.decode(errors="surrogateescape")
    if isinstance(tokenizer, ByteTokenizer):
        assert tokenizer.encode_bytes(data) == tokenizer.encode(as_text) == [byte + 3 for byte in data]
        return
    for encode in (partial(tokenizer.encode_bytes, data), partial(tokenizer.encode, as_text)):
        with refused("the text is not UTF-8 at byte 3; only a byte tokenizer takes any bytes"):
            encode()
    assert tokenizer.encode_bytes("aé".encode()) == tokenizer.encode("aé")


def test_save_load_dict_and_pickle_keep_everything(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "new" / "folder")
    described = tokenizer.to_dict()
    copies = [tokenizer_from_dict(json.loads(json.dumps(described))), pickle.loads(pickle.dumps(tokenizer))]
    for copy in (*copies, load_tokenizer(tmp_path / "new" / "folder")):
        assert type(copy) is type(tokenizer)
        assert copy.token_bytes == tokenizer.token_bytes
        assert copy.encode(CORPUS) == tokenizer.encode(CORPUS)
        assert copy.to_dict() == described
    torch.save(described, file := io.BytesIO())
    file.seek(0)
    assert torch.load(file, weights_only=True) == described


def test_bytes_by_hand() -> None:
    tokenizer = ByteTokenizer("ignored")
    assert tokenizer.vocab_size == 259
    assert tokenizer.encode("aé") == [3 + 0x61, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([3 + 0xC3, 3 + 0x61, 3 + 0xFF]) == "\ufffda\ufffd"
    stream = tokenizer.stream_decoder()
    assert [stream.push(i) for i in tokenizer.encode("é€")] == ["", "é", "", "", "€"]
    assert (stream.push(3 + 0xE2), stream.finish()) == ("", "\ufffd")


def test_characters_by_hand() -> None:
    tokenizer = CharTokenizer("banana é")
    assert (tokenizer.alphabet, tokenizer.vocab_size) == (" abné", 9)
    assert tokenizer.encode("ban é") == [6, 5, 7, 4, 8]
    assert tokenizer.encode("xa\0\U0010ffff") == [3, 5, 3, 3]
    assert tokenizer.decode(tokenizer.encode("xa")) == "\ufffda"
    assert CharTokenizer("").encode("ab\0") == [3, 3, 3]


def test_subwords_shorten_what_they_were_trained_on_and_spell_the_rest_in_bytes(subword: SubwordTokenizer) -> None:
    assert subword.vocab_size == 340
    assert len(subword.encode(CORPUS)) < len(CORPUS) / 2
    assert [subword.token_bytes[i] for i in subword.encode("\U0001f600\n")] == [*map(bytes, zip(b"\xf0\x9f\x98\x80\n"))]
    assert SubwordTokenizer(CORPUS, vocab_size=340).to_dict() == subword.to_dict(), "its training is deterministic"


ALIKE = ["a" * 31, "a" * 32, "a" * 33, "a" * 32 + "b", "a", "a\0", "\0", "\0\0", "a" * 8, "a" * 9, "a" * 16]
spaced = st.lists(st.sampled_from(["b", " ", " ", "\n", "\t", "\u2581", "é", *ALIKE]), max_size=60).map("".join)


@pytest.fixture(scope="module")
def of_spaces() -> SubwordTokenizer:
    text = "  a b  ab \n a  é b\t\u2581 aa" * 100
    made = SubwordTokenizer(text + " ".join(ALIKE).replace("\0", "c"), vocab_size=290)
    assert {b"  ", b" a"} <= {*made.token_bytes} and not any(b"\n" in one for one in made.token_bytes[260:])
    return made


@pytest.mark.parametrize("spread", [words_module.SPREAD, np.uint64(0)])
@settings(max_examples=250)
@given(text=texts | spaced)
@example(text=CORPUS)
@example(text=" ".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000, 5)])))
def test_words_told_apart_have_the_ids_of_whole_lines(
    subword: SubwordTokenizer, of_spaces: SubwordTokenizer, spread: np.uint64, text: str
) -> None:
    """Also where all of them meet in one place of the table."""
    for tokenizer in (subword, of_spaces):
        spelt = {mark: [tokenizer.token_bytes.index(bytes([byte])) for byte in mark.encode()] for mark in "\n\u2581"}
        lines = re.split("([\n\u2581])", text)
        expected = [*chain.from_iterable(spelt.get(line) or tokenizer._processor.encode(line) for line in lines)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(words_module, "SPREAD", spread)
            assert tokenizer.encode(text) == expected
            patch.setattr(subword_module, "LONG", 1)
            assert tokenizer.encode(text) == expected


def test_of_a_long_text_each_word_is_encoded_once(subword: SubwordTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Mock(wraps=subword._processor.encode)
    monkeypatch.setattr(subword, "_processor", Mock(encode=encode))
    subword.encode("the  cat\nsaw the" * 999)
    assert sorted(encode.call_args.args[0]) == ["\n", "  cat", " the", " thethe", "saw", "the"]


@settings(max_examples=200)
@given(text=texts.map(lambda text: text.replace("\u2581", "")))
@example(text=CORPUS)
def test_the_saved_model_is_sentencepieces_own(subword: SubwordTokenizer, text: str) -> None:
    model = base64.b64decode(subword.to_dict()["assets"]["tokenizer.model"])
    processor = SentencePieceProcessor(model_proto=model)
    assert processor.encode(text, out_type=int) == subword.encode(text)
    assert processor.decode(subword.encode(text)) == text


def test_a_vocabulary_that_does_not_fit_the_text_is_refused_and_a_size_named_that_does() -> None:
    for wrong, message in ((100, "too small .* at least 2[0-9][0-9]$"), (10**5, "too large .* at most [0-9]+$")):
        with refused(f"vocab_size {wrong} is {message}") as refusal:
            SubwordTokenizer(CORPUS, vocab_size=wrong)
        named = int(str(refusal.value).split()[-1])
        assert SubwordTokenizer(CORPUS, vocab_size=named).vocab_size == named
    with refused("the training text is empty"):
        SubwordTokenizer("\n\n", vocab_size=300)


def test_damage_is_noticed(subword: SubwordTokenizer, tmp_path: Path) -> None:
    subword.save(tmp_path)
    model = tmp_path / "tokenizer.model"
    content = bytearray(model.read_bytes())
    assert base64.b64encode(content).decode() == subword.to_dict()["assets"]["tokenizer.model"]
    content[100] ^= 1
    model.write_bytes(content)
    with refused(r"tokenizer\.model is damaged"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with refused("not a tokenizer file"):
        load_tokenizer(tmp_path)


def pretrained(vocab: object, vocab_size: object) -> dict[str, object]:
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    content = json.dumps({"model": model, "pre_tokenizer": {"type": "ByteLevel"}, "added_tokens": []})
    assets = {"pretrained.json": base64.b64encode(content.encode()).decode()}
    return {"class": "PretrainedTokenizer", "vocab_size": vocab_size, "assets": assets}


def wrong_descriptions() -> Iterator[dict[str, object]]:
    """Each tokenizer's, with each value of it missing, or one that it cannot be."""
    words = WordTokenizer("a b a c")
    for right in (*(found.to_dict() for found in (ByteTokenizer(), CharTokenizer("ab"), words)), pretrained({}, 0)):
        for key in right:
            others = {name: value for name, value in right.items() if name != key}
            needless = key in ("pad_id", "bos_id", "eos_id", "unk_id")
            yield from () if needless else (others,)
            yield from (others | {key: value} for value in (() if key == "unk_id" else (None, "x", [3], {"x": 3}, -1)))
        ids = {"vocab_size", "pad_id", "bos_id", "eos_id"} & right.keys()
        yield from (right | {key: float(right[key])} for key in sorted(ids))
        yield right | {"bos_id": True}  # the integer 1, to Python
    yield from (words.to_dict() | {"class": name} for name in ("StoredTokenizer", "Tokenizer", "os.system", ["x"]))
    yield {"class": "SubwordTokenizer", "vocab_size": 3, "assets": {"tokenizer.model": "AAAA"}}
    # What would take the memory that a number names.
    yield from (pretrained({"a": number}, 10**12 + 1) for number in (-1, 10**12, "x"))
    yield pretrained({"a": 0}, 10**12)


def test_a_description_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for content in wrong_descriptions():
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        for load in (tokenizer_from_dict, lambda _: load_tokenizer(tmp_path)):
            with pytest.raises((ValueError, FileNotFoundError)):
                load(content)
    for described, message in (
        ({"class": "MorseTokenizer"}, r"'MorseTokenizer', known are .*ByteTokenizer, CharTokenizer"),
        ({"class": "CharTokenizer"}, "lacks 'alphabet'"),
        ({"class": "ByteTokenizer", "vocab_size": 9}, "has 259 tokens, its description says 9"),
    ):
        with refused(message):
            tokenizer_from_dict({**described, "assets": {}})


def test_words_by_hand() -> None:
    words = WordTokenizer(TEXT)
    # the 3, dog 2, then once each: . cat ran saw é by code point
    assert words.words == ("the", "dog", ".", "cat", "ran", "saw", "é")
    assert words.vocab_size == 11
    assert words.encode(" the cat\n\nran ") == [4, 7, 8]

    assert words.encode("the Cat thedog") == [4, 3, 3]
    assert words.decode([4, 3, 5]) == "the <unk> dog"
    assert words.decode([3, 4]) == "<unk> the"
    stream = words.stream_decoder()
    assert [stream.push(i) for i in (1, 4, 0, 5)] == ["", "the", "", " dog"]
    of_unknown = WordTokenizer("<unk> a <unk>")
    assert (of_unknown.words, of_unknown.encode("a <unk>")) == (("a",), [4, 3])


def test_a_newline_is_a_token_on_request(tmp_path: Path) -> None:
    tokenizer = WordTokenizer("the cat\n the dog \n\n", newlines=True)
    assert tokenizer.words == ("\n", "the", "cat", "dog")
    assert tokenizer.encode("the\ncat\n\n fish") == [5, 4, 6, 4, 4, 3]
    assert tokenizer.decode([5, 6, 4, 4, 7]) == "the cat\n\n dog"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("a\n") == [3, 4]


def test_the_vocabulary_is_limited_by_count_and_size() -> None:
    assert WordTokenizer(TEXT, min_count=2).words == ("the", "dog")
    assert WordTokenizer(TEXT, max_size=7).words == ("the", "dog", ".")
    assert WordTokenizer(TEXT, min_count=3, max_size=7).vocab_size == 5
    assert WordTokenizer(TEXT, max_size=5).words == ("the",)
    assert WordTokenizer(TEXT, max_size=100).vocab_size == 11
    assert WordTokenizer("").encode("the") == [3]
    with refused("min_count must be at least 1, got 0"):
        WordTokenizer(TEXT, min_count=0)
    with refused("max_size must be at least 5.*got 4"):
        WordTokenizer(TEXT, max_size=4)
