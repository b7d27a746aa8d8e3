"""Text to token files on disk, made once for each content and settings, and memory-mapped afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from seqlab_data.cache_folder import cached_folder
from seqlab_data.text_source import Document, content_digest
from seqlab_data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
)

FORMAT = 1
"""Raise it when the tokens of the same text and settings change, so that old caches are left behind."""
SPLITS = ("train", "val", "test")
LEARNED = (ByteTokenizer, CharTokenizer, SubwordTokenizer, WordTokenizer)


@dataclass(frozen=True)
class TokenFile:
    """One split's tokens on disk, little-endian and headless.

    Attributes:
        num_tokens: with the bos before each document.
        num_chars: characters of text.
        begins: the file and the byte in it where the split begins.
    """

    split: str
    path: str
    dtype: str
    num_tokens: int
    num_chars: int
    begins: str


@dataclass(frozen=True)
class TokenCache:
    """The tokens of a text: its content's digest, the tokenizer, and one file a split."""

    digest: str
    tokenizer: Tokenizer
    splits: dict[str, TokenFile]


def open_token_cache(
    documents: Sequence[Document],
    fractions: Sequence[float],
    make_tokenizer: Callable[[str], Tokenizer],
    root: str | Path | None = None,
    apart: Mapping[str, Sequence[Document]] | None = None,
) -> TokenCache:
    """Reads the cache of these documents and settings; makes it if it is missing or damaged.

    The concatenated text is cut by `fractions` into train, val and test before anything is tokenized; the
    tokenizer learns from train alone. In each split every document, also one that began in the split before, is
    preceded by bos. Any number of processes may call this at once.

    Args:
        root: folder of the caches; None = `$SEQLAB_CACHE`, or `seqlab` in `$XDG_CACHE_HOME` or `~/.cache`.
        apart: documents of val or test that are not cut off; the others share the text by their `fractions`.

    Raises:
        ValueError: a document is empty or not in its encoding, or the tokenizer cannot learn from it.
        OSError: a file cannot be read or written.
    """
    text = _Text(documents, fractions, apart or {})
    digest = text.digest
    settings = tokenizer_settings(make_tokenizer)
    if settings is None:
        tokenizer = make_tokenizer(text.train)
        settings, make_tokenizer = tokenizer.to_dict(), lambda text: tokenizer
    folder = cached_folder(
        [FORMAT, digest, list(fractions), settings],
        lambda folder: _make(folder, text, make_tokenizer),
        root,
    )
    described = json.loads((folder / "splits.json").read_text())
    splits = {}
    for name in SPLITS:
        document, byte = described[name].pop("begins")
        begins = f"{text.documents[document].name}, byte {byte}"
        splits[name] = TokenFile(name, str(folder / f"{name}.bin"), begins=begins, **described[name])
    return TokenCache(digest, load_tokenizer(folder), splits)


def split_documents(lengths: Sequence[int], fractions: Sequence[float]) -> dict[str, list[tuple[int, int, int]]]:
    """Cuts documents of these lengths, end to end, into contiguous train, val and test.

    Returns:
        For each split its pieces (document, start, stop), in order; together they cover every character once.
    """
    total = sum(lengths)
    cuts = [0, round(total * fractions[0]), round(total * (fractions[0] + fractions[1])), total]
    pieces: dict[str, list[tuple[int, int, int]]] = {}
    for name, begin, end in zip(SPLITS, cuts[:-1], cuts[1:], strict=True):
        pieces[name], offset = [], 0
        for document, length in enumerate(lengths):
            start, stop = max(begin - offset, 0), min(end - offset, length)
            if start < stop:
                pieces[name].append((document, start, stop))
            offset += length
    return pieces


class _Text:
    """Documents that are cut into splits, and those of splits that stand apart.

    Attributes:
        documents: all of them.
    """

    def __init__(
        self, cut: Sequence[Document], fractions: Sequence[float], apart: Mapping[str, Sequence[Document]]
    ) -> None:
        self.documents = [*cut, *chain.from_iterable(apart.values())]
        self._cut, self._fractions, self._apart = cut, fractions, apart

    @property
    def digest(self) -> str:
        if not self._apart:
            return content_digest(self._cut)
        splits = [("train", self._cut), *self._apart.items()]
        return sha256(json.dumps([(name, content_digest(some)) for name, some in splits]).encode()).hexdigest()

    @property
    def train(self) -> str:
        texts, pieces = self.read()
        return "".join(texts[i][start:stop] for i, start, stop in pieces["train"])

    def read(self) -> tuple[list[str], dict[str, list[tuple[int, int, int]]]]:
        """All texts, and of each split its pieces (text, start, stop)."""
        texts = [document.read() for document in self.documents]
        shares = [0 if name in self._apart else share for name, share in zip(SPLITS, self._fractions, strict=True)]
        whole = sum(shares) if self._apart else 1
        pieces = split_documents([len(text) for text in texts[: len(self._cut)]], [share / whole for share in shares])
        begin = len(self._cut)
        for name, some in self._apart.items():
            pieces[name] = [(i, 0, len(texts[i])) for i in range(begin, begin + len(some))]
            begin += len(some)
        return texts, pieces


def _make(folder: Path, text: _Text, make_tokenizer: Callable[[str], Tokenizer]) -> None:
    texts, pieces = text.read()
    tokenizer = make_tokenizer("".join(texts[i][start:stop] for i, start, stop in pieces["train"]))
    dtype = "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"
    splits = {}
    for name in SPLITS:
        num_tokens = num_chars = 0
        with open(folder / f"{name}.bin", "wb") as file:
            for i, start, stop in pieces[name]:
                ids = np.append(tokenizer.bos_id, tokenizer.encode_array(texts[i][start:stop]))
                ids.astype(dtype).tofile(file)
                num_tokens += len(ids)
                num_chars += stop - start
        i, start, _ = pieces[name][0] if pieces[name] else (len(texts) - 1, len(texts[-1]), 0)
        begins = i, len(texts[i][:start].encode(text.documents[i].encoding))
        splits[name] = {"dtype": dtype, "num_tokens": num_tokens, "num_chars": num_chars, "begins": begins}
    tokenizer.save(folder)
    (folder / "splits.json").write_text(json.dumps(splits))


def tokenizer_settings(make_tokenizer: Callable[[str], Tokenizer]) -> dict[str, Any] | None:
    """What decides the tokens that this factory's tokenizer gives, where that can be told without the text.

    It can for those that learn from the text alone, as they are or in a `partial`; a file that others read, and other
    code, may change under the same name.
    """
    parts: tuple[Any, ...] = (make_tokenizer,)
    options: dict[str, Any] = {}
    if isinstance(make_tokenizer, partial):
        parts, options = (make_tokenizer.func, *make_tokenizer.args), make_tokenizer.keywords
    classes = [part for part in parts if isinstance(part, type)]
    if len(classes) != 1 or classes[0] not in LEARNED:
        return None
    return {"class": classes[0].__name__, **options}
