"""Laws of every tokenizer, and what is particular to each."""

from __future__ import annotations

import base64
import io
import json
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from sentencepiece import SentencePieceProcessor

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
    *("", "\0", "\n", "\n\n", "\r\n", " ", "   a  b ", "\t", "\ufeff", "\ufffd", "e\u0301", "\U0001f600", "\U0010ffff"),
    *(
        "\u2581",
        "a\u2581b \u2581\u2581",
        "\u2585",
        " \u2047 ",
        "<s></s><unk><pad>",
        "<0x41><0x0A>",
        "\u3000\u00a0\u2028",
    ),
]


def random_texts(count: int = 1500) -> list[str]:
    """Texts over every plane of Unicode, mixed with pieces that a tokenizer may take for something else."""
    rng = random.Random(0)

    def piece() -> str:
        top = rng.choice((0x80, 0x800, 0x3000, 0x10000, 0x110000))
        code = rng.choice((rng.randrange(top), *(ord(c) for c in " \n\u2581")))
        return rng.choice((chr(code), " the", *NASTY)) if not 0xD800 <= code < 0xE000 else " "

    return NASTY + ["".join(piece() for _ in range(rng.randrange(30))) for _ in range(count)]


@pytest.fixture(scope="module")
def subword() -> SubwordTokenizer:
    return SubwordTokenizer(CORPUS, vocab_size=340)


TEXT = "the cat saw the dog\n the  dog\tran é ."


@pytest.fixture(params=["byte", "char", "subword", "word"])
def tokenizer(request: pytest.FixtureRequest, subword: SubwordTokenizer) -> Tokenizer:
    every = CORPUS + "".join(random_texts())
    made = {"byte": ByteTokenizer, "char": lambda: CharTokenizer(every), "subword": lambda: subword}
    return made.get(request.param, lambda: WordTokenizer(f"{TEXT} a b a\u00e9"))()


def test_decode_inverts_encode(tokenizer: Tokenizer) -> None:
    for text in [CORPUS, *random_texts()]:
        if isinstance(tokenizer, WordTokenizer):
            text = " ".join(word for word in text.split() if word in tokenizer.words)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(2 < i < tokenizer.vocab_size for i in ids)


def test_specials_are_distinct_and_decode_to_nothing(tokenizer: Tokenizer) -> None:
    specials = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id]
    assert len(set(specials)) == 3
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    written = tokenizer.decode([specials[1], *a, specials[2], *b, specials[0]])
    assert written == ("a b" if isinstance(tokenizer, WordTokenizer) else "ab")


def test_streaming_any_ids_gives_what_decode_gives(tokenizer: Tokenizer) -> None:
    rng = random.Random(1)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(20))]
        stream = tokenizer.stream_decoder()
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer, wrong: int) -> None:
    with pytest.raises(ValueError, match=rf"token id {wrong} .* 0 to {tokenizer.vocab_size - 1}"):
        tokenizer.decode([3, wrong])


def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        tokenizer.encode("a\ud800")


def test_what_is_not_utf8_is_refused_with_its_offset(tokenizer: Tokenizer) -> None:
    """Refuses bytes, and the text Python makes of them on a command line; a byte tokenizer takes both."""
    data = "aé".encode() + b"\xe2\x82"
    as_text = data.decode(errors="surrogateescape")
    if isinstance(tokenizer, ByteTokenizer):
        assert tokenizer.encode_bytes(data) == tokenizer.encode(as_text) == [byte + 3 for byte in data]
        return
    for encode in (partial(tokenizer.encode_bytes, data), partial(tokenizer.encode, as_text)):
        with pytest.raises(ValueError, match="the text is not UTF-8 at byte 3; only a byte tokenizer takes any bytes"):
            encode()
    assert tokenizer.encode_bytes("aé".encode()) == tokenizer.encode("aé")


def test_save_load_dict_and_pickle_keep_everything(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "new" / "folder")
    described = json.loads(json.dumps(tokenizer.to_dict()))
    for copy in (
        load_tokenizer(tmp_path / "new" / "folder"),
        tokenizer_from_dict(described),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert type(copy) is type(tokenizer)
        assert copy.token_bytes == tokenizer.token_bytes
        assert copy.encode(CORPUS) == tokenizer.encode(CORPUS)
        assert copy.to_dict() == tokenizer.to_dict()


def test_its_description_loads_with_weights_only(tokenizer: Tokenizer) -> None:
    file = io.BytesIO()
    torch.save({"tokenizer": tokenizer.to_dict()}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == {"tokenizer": tokenizer.to_dict()}


def test_bytes_by_hand() -> None:
    tokenizer = ByteTokenizer("ignored")
    assert tokenizer.vocab_size == 259
    assert tokenizer.encode("aé") == [3 + 0x61, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([3 + 0xC3, 3 + 0x61, 3 + 0xFF]) == "\ufffda\ufffd"


def test_a_stream_holds_back_an_unfinished_character() -> None:
    stream = ByteTokenizer().stream_decoder()
    assert [stream.push(i) for i in ByteTokenizer().encode("é€")] == ["", "é", "", "", "€"]
    assert stream.push(3 + 0xE2) == ""
    assert stream.finish() == "\ufffd"


def test_characters_by_hand() -> None:
    tokenizer = CharTokenizer("banana é")
    assert tokenizer.alphabet == " abné"
    assert tokenizer.vocab_size == 9
    assert tokenizer.encode("ban é") == [6, 5, 7, 4, 8]
    assert tokenizer.encode("xa\0\U0010ffff") == [3, 5, 3, 3]
    assert tokenizer.decode(tokenizer.encode("xa")) == "\ufffda"
    assert CharTokenizer("").encode("ab\0") == [3, 3, 3]


def test_subwords_shorten_what_they_were_trained_on_and_spell_the_rest_in_bytes(subword: SubwordTokenizer) -> None:
    assert subword.vocab_size == 340
    assert len(subword.encode(CORPUS)) < len(CORPUS) / 2
    assert [subword.token_bytes[i] for i in subword.encode("\U0001f600\n")] == [
        b"\xf0",
        b"\x9f",
        b"\x98",
        b"\x80",
        b"\n",
    ]


@pytest.mark.parametrize("spread", [words_module.SPREAD, np.uint64(0)])
def test_words_told_apart_have_the_ids_of_whole_lines(
    subword: SubwordTokenizer, spread: np.uint64, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all of them meet in one place of the table."""
    monkeypatch.setattr(words_module, "SPREAD", spread)
    rng = random.Random(2)
    alike = ["a" * 31, "a" * 32, "a" * 33, "a" * 32 + "b", "a", "a\0", "\0", "\0\0", "a" * 8, "a" * 9, "a" * 16]
    spaced = ["".join(rng.choices(["a", "b", " ", " ", "\n", "\t", "\u2581", "é", *alike], k=30)) for _ in range(200)]
    spaces = SubwordTokenizer("".join(text.replace("\0", "c") for text in spaced), vocab_size=330)
    assert {b"  ", b" a"} <= {*spaces.token_bytes} and not any(b"\n" in one for one in spaces.token_bytes[260:])
    for tokenizer in (subword, spaces):
        spelt = {mark: [tokenizer.token_bytes.index(bytes([byte])) for byte in mark.encode()] for mark in "\n\u2581"}
        for text in [*random_texts(200), *spaced, "".join(random_texts()), CORPUS]:
            lines = re.split("([\n\u2581])", text)
            expected = [*chain.from_iterable(spelt.get(line) or tokenizer._processor.encode(line) for line in lines)]
            assert tokenizer.encode(text) == expected
            with monkeypatch.context() as patch:
                patch.setattr(subword_module, "LONG", 1)
                assert tokenizer.encode(text) == expected


def test_of_a_long_text_each_word_is_encoded_once(subword: SubwordTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Mock(wraps=subword._processor.encode)
    monkeypatch.setattr(subword, "_processor", Mock(encode=encode))
    subword.encode("the  cat\nsaw the" * 999)
    assert sorted(encode.call_args.args[0]) == ["\n", "  cat", " the", " thethe", "saw", "the"]


def test_subword_training_is_deterministic(subword: SubwordTokenizer) -> None:
    assert SubwordTokenizer(CORPUS, vocab_size=340).to_dict() == subword.to_dict()


def test_the_saved_model_is_sentencepieces_own(subword: SubwordTokenizer, tmp_path: Path) -> None:
    subword.save(tmp_path)
    processor = SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    for text in [CORPUS, *random_texts(300)]:
        if "\u2581" not in text:
            assert processor.encode(text, out_type=int) == subword.encode(text)
            assert processor.decode(subword.encode(text)) == text


@pytest.mark.parametrize(
    "text, vocab_size, message",
    [
        (CORPUS, 100, "vocab_size 100 is too small .* at least 2[0-9][0-9]$"),
        (CORPUS, 10**5, "vocab_size 100000 is too large .* at most [0-9]+$"),
        ("\n\n", 300, "the training text is empty"),
    ],
)
def test_a_vocabulary_that_does_not_fit_the_text_is_refused(text: str, vocab_size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SubwordTokenizer(text, vocab_size=vocab_size)


def test_the_size_that_a_refusal_names_is_accepted() -> None:
    for wrong in (100, 10**5):
        with pytest.raises(ValueError) as refusal:
            SubwordTokenizer(CORPUS, vocab_size=wrong)
        named = int(str(refusal.value).split()[-1])
        assert SubwordTokenizer(CORPUS, vocab_size=named).vocab_size == named


def test_damage_is_noticed(subword: SubwordTokenizer, tmp_path: Path) -> None:
    subword.save(tmp_path)
    model = tmp_path / "tokenizer.model"
    content = bytearray(model.read_bytes())
    content[100] ^= 1
    model.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.model is damaged"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="not a tokenizer file"):
        load_tokenizer(tmp_path)


PRETRAINED = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel"},
    "added_tokens": [],
}


def pretrained(vocab: object, vocab_size: object) -> dict[str, object]:
    content = json.dumps(PRETRAINED | {"model": {"type": "BPE", "vocab": vocab, "merges": []}})
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


def test_an_unknown_class_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'MorseTokenizer', known are .*ByteTokenizer, CharTokenizer"):
        tokenizer_from_dict({"class": "MorseTokenizer", "assets": {}})
    with pytest.raises(ValueError, match="lacks 'alphabet'"):
        tokenizer_from_dict({"class": "CharTokenizer", "assets": {}})
    with pytest.raises(ValueError, match="has 259 tokens, its description says 9"):
        tokenizer_from_dict({"class": "ByteTokenizer", "vocab_size": 9, "assets": {}})


def test_importing_them_loads_neither_torch_nor_lightning_nor_sentencepiece() -> None:
    code = (
        "import sys, seqlab_data.tokenizers as t; t.CharTokenizer('a').encode('a'); "
        "print(sorted({'torch', 'lightning', 'sentencepiece', 'filelock'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.fixture
def words() -> WordTokenizer:
    return WordTokenizer(TEXT)


def test_words_by_hand(words: WordTokenizer) -> None:
    # the 3, dog 2, then once each: . cat ran saw é by code point
    assert words.words == ("the", "dog", ".", "cat", "ran", "saw", "é")
    assert words.vocab_size == 11
    assert words.encode(" the cat\n\nran ") == [4, 7, 8]
    assert words.decode([1, 4, 7, 8, 2, 0]) == "the cat ran"
    assert words.encode("") == words.encode(" \n") == []
    assert words.decode([]) == ""


def test_a_newline_is_a_token_on_request(tmp_path: Path) -> None:
    tokenizer = WordTokenizer("the cat\n the dog \n\n", newlines=True)
    assert tokenizer.words == ("\n", "the", "cat", "dog")
    assert tokenizer.encode("the\ncat\n\n fish") == [5, 4, 6, 4, 4, 3]
    assert tokenizer.decode([5, 6, 4, 4, 7]) == "the cat\n\n dog"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("a\n") == [3, 4]


def test_an_unknown_word_is_one_token_and_shows_as_unk(words: WordTokenizer) -> None:
    assert words.encode("the Cat thedog") == [4, 3, 3]
    assert words.decode([4, 3, 5]) == "the <unk> dog"
    assert words.decode([3, 4]) == "<unk> the"


def test_the_word_unk_in_a_text_is_the_unknown_word() -> None:
    tokenizer = WordTokenizer("<unk> a <unk>")
    assert tokenizer.words == ("a",)
    assert tokenizer.encode("a <unk>") == [4, 3]


def test_decode_joins_the_words_of_a_known_text_by_one_space(words: WordTokenizer) -> None:
    rng = random.Random(0)
    for _ in range(200):
        chosen = [rng.choice(TEXT.split()) for _ in range(rng.randrange(12))]
        ids = words.encode("".join(rng.choice((" ", "\n", " \t ")) + word for word in chosen))
        assert words.decode(ids) == " ".join(chosen)
        assert len(ids) == len(chosen)


def test_a_stream_has_no_space_before_its_first_word(words: WordTokenizer) -> None:
    stream = words.stream_decoder()
    assert [stream.push(i) for i in (1, 4, 0, 5)] == ["", "the", "", " dog"]


def test_the_vocabulary_is_limited_by_count_and_size() -> None:
    assert WordTokenizer(TEXT, min_count=2).words == ("the", "dog")
    assert WordTokenizer(TEXT, max_size=7).words == ("the", "dog", ".")
    assert WordTokenizer(TEXT, min_count=3, max_size=7).vocab_size == 5
    assert WordTokenizer(TEXT, max_size=100).vocab_size == 11
    assert WordTokenizer("").encode("the") == [3]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"min_count": 0}, "min_count must be at least 1, got 0"),
        ({"max_size": 4}, "max_size must be at least 5.*got 4"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordTokenizer(TEXT, **options)
