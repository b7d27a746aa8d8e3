"""WordTokenizer: its own laws, which differ from the lossless tokenizers' in whitespace and unknown words."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import pytest

from seqlab_data.tokenizers import StreamDecoder, WordTokenizer, load_tokenizer, tokenizer_from_dict

TEXT = "the cat saw the dog\n the  dog\tran é ."


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer(TEXT)


def test_words_by_hand(tokenizer: WordTokenizer) -> None:
    # the 3, dog 2, then once each: . cat ran saw é by code point
    assert tokenizer.words == ("the", "dog", ".", "cat", "ran", "saw", "é")
    assert tokenizer.vocab_size == 11
    assert tokenizer.encode(" the cat\n\nran ") == [4, 7, 8]
    assert tokenizer.decode([1, 4, 7, 8, 2, 0]) == "the cat ran"
    assert tokenizer.encode("") == tokenizer.encode(" \n") == []
    assert tokenizer.decode([]) == ""


def test_a_newline_is_a_token_on_request(tmp_path: Path) -> None:
    tokenizer = WordTokenizer("the cat\n the dog \n\n", newlines=True)
    assert tokenizer.words == ("\n", "the", "cat", "dog")
    assert tokenizer.encode("the\ncat\n\n fish") == [5, 4, 6, 4, 4, 3]
    assert tokenizer.decode([5, 6, 4, 4, 7]) == "the cat\n\n dog"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode("a\n") == [3, 4]


def test_an_unknown_word_is_one_token_and_shows_as_unk(tokenizer: WordTokenizer) -> None:
    assert tokenizer.encode("the Cat thedog") == [4, 3, 3]
    assert tokenizer.decode([4, 3, 5]) == "the <unk> dog"
    assert tokenizer.decode([3, 4]) == "<unk> the"


def test_the_word_unk_in_a_text_is_the_unknown_word() -> None:
    tokenizer = WordTokenizer("<unk> a <unk>")
    assert tokenizer.words == ("a",)
    assert tokenizer.encode("a <unk>") == [4, 3]


def test_decode_joins_the_words_of_a_known_text_by_one_space(tokenizer: WordTokenizer) -> None:
    rng = random.Random(0)
    for _ in range(200):
        words = [rng.choice(TEXT.split()) for _ in range(rng.randrange(12))]
        ids = tokenizer.encode("".join(rng.choice((" ", "\n", " \t ")) + word for word in words))
        assert tokenizer.decode(ids) == " ".join(words)
        assert len(ids) == len(words)


def test_streaming_any_ids_gives_what_decode_gives(tokenizer: WordTokenizer) -> None:
    rng = random.Random(1)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(8))]
        stream = tokenizer.stream_decoder()
        assert isinstance(stream, StreamDecoder)
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)
    stream = tokenizer.stream_decoder()
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
def test_a_wrong_option_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordTokenizer(TEXT, **options)


def test_what_no_text_can_hold_is_refused(tokenizer: WordTokenizer) -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        tokenizer.encode("the \ud800")
    with pytest.raises(ValueError, match=r"token id 11 .* 0 to 10"):
        tokenizer.decode([11])


def test_save_load_dict_and_pickle_keep_everything(tmp_path: Path) -> None:
    tokenizer = WordTokenizer(TEXT, min_count=1, max_size=9)
    tokenizer.save(tmp_path)
    for copy in (
        load_tokenizer(tmp_path),
        tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict()))),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert type(copy) is WordTokenizer
        assert copy.words == tokenizer.words
        assert copy.encode(TEXT) == tokenizer.encode(TEXT)
        assert copy.to_dict() == tokenizer.to_dict()
