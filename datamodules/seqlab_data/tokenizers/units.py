"""Tokenizers that split a text into bytes, characters or words."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.base import StreamDecoder, Tokenizer
from seqlab_data.tokenizers.pieces import after_space, recut

UNKNOWN = "<unk>"


class ByteTokenizer(Tokenizer):
    """UTF-8 bytes as tokens: byte b is token b + 3. Nothing is learnt from `text`."""

    def __init__(self, text: str = "") -> None:
        super().__init__([b"", b"", b"", *(bytes([byte]) for byte in range(256))])

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        return cls(**options)

    def cut(self, text: str) -> int:
        return len(text)

    def encode_array(self, text: str) -> NDArray[np.int32]:
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32) + 3

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes."""
        return [byte + 3 for byte in data]

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        return cls()


class CharTokenizer(Tokenizer):
    """Characters as tokens: the Unicode code points of `text`, sorted, are tokens 4, 5, ...

    Any other character is `unk_id`, which decodes to U+FFFD.
    """

    unk_id = 3

    def __init__(self, text: str) -> None:
        self.alphabet = "".join(sorted(set(text)))
        super().__init__([b"", b"", b"", "\N{REPLACEMENT CHARACTER}".encode(), *(c.encode() for c in self.alphabet)])
        code_points = _code_points(self.alphabet)
        # The id of each code point; the last entry is used for all larger ones.
        self._ids = np.full(max(code_points, default=0) + 2, self.unk_id, dtype=np.int32)
        self._ids[code_points] = np.arange(len(code_points)) + 4

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        seen = np.zeros(sys.maxunicode + 1, dtype=bool)
        for text in texts:
            seen[_code_points(text)] = True
        return cls("".join(map(chr, np.flatnonzero(seen))), **options)

    def cut(self, text: str) -> int:
        return len(text)

    def encode_array(self, text: str) -> NDArray[np.int32]:
        return self._ids.take(_code_points(text), mode="clip")

    def _settings(self) -> dict[str, Any]:
        return {"unk_id": self.unk_id, "alphabet": self.alphabet}

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        tokenizer = cls(settings["alphabet"])
        if tokenizer.alphabet != settings["alphabet"]:
            raise ValueError("the alphabet of this CharTokenizer is not in order")
        return tokenizer


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint32)


class WordTokenizer(Tokenizer):
    """Words as tokens: the whitespace-separated words of `text` are tokens 4, 5, ..., by falling frequency, then
    sorted. With `newlines`, a newline is also a word; its only byte is the newline.

    Any other word is `unk_id`, which decodes to "<unk>". A token's bytes are a space and its word, and decoding removes
    the first space: without newlines, `decode(encode(text)) == " ".join(text.split())` for every text of known words.

    Args:
        min_count: minimum number of occurrences of a word to become a token.
        max_size: maximum vocabulary size, specials and unknown included; None = no limit.
        newlines: if True, each newline is a token, like the <eos> of word-level language models.

    Raises:
        ValueError: an option is out of range, or the text contains a lone surrogate.
    """

    unk_id = 3

    def __init__(self, text: str, *, min_count: int = 1, max_size: int | None = None, newlines: bool = False) -> None:
        self._learn([text], min_count=min_count, max_size=max_size, newlines=newlines)

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._learn(recut(texts, after_space), **options)
        return tokenizer

    def cut(self, text: str) -> int:
        return after_space(text)

    def _learn(
        self, texts: Iterable[str], *, min_count: int = 1, max_size: int | None = None, newlines: bool = False
    ) -> None:
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {min_count}")
        if max_size is not None and max_size < 5:
            raise ValueError(f"max_size must be at least 5, one word beside the 4 special tokens, got {max_size}")
        self.newlines = newlines
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(self._split(text))
        del counts[UNKNOWN]
        words = sorted(
            (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
        )
        self._open(words if max_size is None else words[: max_size - 4])

    def _open(self, words: list[str]) -> None:
        self.words = tuple(words)
        super().__init__([b"", b"", b"", *map(_spelt, (UNKNOWN, *words))])
        self._ids = {word: token_id for token_id, word in enumerate(words, start=4)}

    def encode_array(self, text: str) -> NDArray[np.int32]:
        text.encode("utf-8")
        return np.array([self._ids.get(word, self.unk_id) for word in self._split(text)], dtype=np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(ids).removeprefix(" ")

    def stream_decoder(self) -> StreamDecoder:
        return WordStream(self)

    def _split(self, text: str) -> list[str]:
        return re.findall(r"\n|\S+", text) if self.newlines else text.split()

    def _settings(self) -> dict[str, Any]:
        return {"unk_id": self.unk_id, "words": list(self.words), "newlines": self.newlines}

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer.newlines, words = settings["newlines"], settings["words"]
        if not isinstance(words, list) or not isinstance(tokenizer.newlines, bool):
            raise TypeError(f"its newlines are {tokenizer.newlines!r}, its words a {type(words).__name__}")
        tokenizer._open(words)
        return tokenizer


def _spelt(word: str) -> bytes:
    return b"\n" if word == "\n" else f" {word}".encode()


class WordStream(StreamDecoder):
    """Stream decoder that removes the space before the first word."""

    _begun = False

    def push(self, token_id: int) -> str:
        text = super().push(token_id)
        if self._begun:
            return text
        self._begun = bool(text)
        return text.removeprefix(" ")
