"""Text to token files on disk, made once for each content and settings, and memory-mapped afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path

import numpy as np

from seqlab_data.cache import cached_tokens
from seqlab_data.documents import Document, content_digest
from seqlab_data.splits import SPLITS
from seqlab_data.tokenizers import Tokenizer

FORMAT = 1
"""Raise it when the tokens of the same text and settings change, so that old caches are left behind."""


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
    folder, tokenizer = cached_tokens(
        [FORMAT, digest, list(fractions)],
        make_tokenizer,
        lambda: text.train,
        lambda folder, tokenizer: _make(folder, text, tokenizer),
        root,
    )
    described = json.loads((folder / "splits.json").read_text())
    splits = {}
    for name in SPLITS:
        document, byte = described[name].pop("begins")
        begins = f"{text.documents[document].name}, byte {byte}"
        splits[name] = TokenFile(name, str(folder / f"{name}.bin"), begins=begins, **described[name])
    return TokenCache(digest, tokenizer, splits)


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
    """Documents that are cut into splits, and those of splits that stand apart. The digest reads them and keeps
    nothing; the texts are read when a cache is made, and once.

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
            return content_digest(document.content() for document in self._cut)
        splits = {"train": self._cut, **self._apart}
        digests = [(name, content_digest(document.content() for document in some)) for name, some in splits.items()]
        return sha256(json.dumps(digests).encode()).hexdigest()

    @cached_property
    def texts(self) -> list[str]:
        return [document.read() for document in self.documents]

    @cached_property
    def pieces(self) -> dict[str, list[tuple[int, int, int]]]:
        """Of each split its pieces (text, start, stop)."""
        shares = [0 if name in self._apart else share for name, share in zip(SPLITS, self._fractions, strict=True)]
        whole = sum(shares) if self._apart else 1
        lengths = [len(text) for text in self.texts]
        pieces = split_documents(lengths[: len(self._cut)], [share / whole for share in shares])
        begin = len(self._cut)
        for name, some in self._apart.items():
            pieces[name] = [(i, 0, lengths[i]) for i in range(begin, begin + len(some))]
            begin += len(some)
        return pieces

    @property
    def train(self) -> str:
        return "".join(self.texts[i][start:stop] for i, start, stop in self.pieces["train"])


def _make(folder: Path, text: _Text, tokenizer: Tokenizer) -> None:
    texts, pieces = text.texts, text.pieces
    dtype = "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"
    splits = {}
    for name in SPLITS:
        num_tokens = num_chars = 0
        with open(folder / f"{name}.bin", "wb") as file:
            for i, start, stop in pieces[name]:
                ids = np.append(tokenizer.bos_id, tokenizer.encode_array(texts[i][start:stop]))  # (1 + T,)
                ids.astype(dtype).tofile(file)
                num_tokens += len(ids)
                num_chars += stop - start
        i, start, _ = pieces[name][0] if pieces[name] else (len(texts) - 1, len(texts[-1]), 0)
        begins = i, len(texts[i][:start].encode(text.documents[i].encoding))
        splits[name] = {"dtype": dtype, "num_tokens": num_tokens, "num_chars": num_chars, "begins": begins}
    (folder / "splits.json").write_text(json.dumps(splits))
