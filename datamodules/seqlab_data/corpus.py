"""Documents as one long text that is streamed: measured, cut into train, val and test, and read part by part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from seqlab_data.measured import Measure, hashed, measured
from seqlab_data.progress import CharsRead
from seqlab_data.reading import Document
from seqlab_data.splits import SPLITS
from seqlab_data.text_rows import TextRows


class Share(NamedTuple):
    """A split's part of one document: the index of the document, and the line where the part begins."""

    split: str
    document: int
    line: int


class Corpus:
    """Concatenated documents cut by characters into contiguous splits, and separate documents of other splits.

    Args:
        cut: documents to be divided into splits.
        fractions: fractions of train, val and test.
        apart: separate documents of val or test; the remaining splits divide `cut` in proportion to their `fractions`.
        root: root folder of the caches, as in `cached_folder`.

    Attributes:
        files: all documents.
        fractions: the fractions as given.

    Raises:
        ValueError: on reading, a document is empty or not in its encoding.
    """

    def __init__(
        self,
        cut: Sequence[Document],
        fractions: Sequence[float],
        apart: Mapping[str, Sequence[Document]],
        root: str | Path | None = None,
    ) -> None:
        self.files = [*cut, *(document for some in apart.values() for document in some)]
        self.fractions, self._root = fractions, root
        self._groups = {"train": cut, **apart}
        shares = [0 if name in apart else share for name, share in zip(SPLITS, fractions, strict=True)]
        self._shares = [share / sum(shares) for share in shares] if apart else fractions

    @cached_property
    def _measures(self) -> dict[str, Measure]:
        return {split: measured(some, self._root) for split, some in self._groups.items()}

    def place(self, document: int, line: int) -> str:
        """Name of a document's line, for reports."""
        if any(isinstance(file, TextRows) for file in self.files):
            names = " to ".join(dict.fromkeys((self.files[0].name, self.files[-1].name)))
            return f"{names}, document {document + 1}, line {line}"
        return f"{self.files[document].name}, line {line}"

    @property
    def digest(self) -> str:
        if len(self._groups) == 1:
            return self._measures["train"].digest
        digests = [(split, measured.digest) for split, measured in self._measures.items()]
        return sha256(json.dumps(digests).encode()).hexdigest()

    @cached_property
    def num_chars(self) -> dict[str, int]:
        """Number of characters in each split."""
        total = self._measures["train"].num_chars
        cuts = [0, round(total * self._shares[0]), round(total * (self._shares[0] + self._shares[1])), total]
        sizes = dict(zip(SPLITS, (end - begin for begin, end in pairwise(cuts)), strict=True))
        return sizes | {split: self._measures[split].num_chars for split in self._groups if split != "train"}

    def train(self) -> Iterator[str]:
        """Text of the train split, in pieces.

        Raises:
            ValueError: as in `shares`, which is read to its end.
        """
        with CharsRead("learning tokens", self.num_chars["train"]) as bar:
            for share, text in self.shares():
                if share.split == "train":
                    bar.add(len(text))
                    yield text

    def shares(self) -> Iterator[tuple[Share, str]]:
        """All text in order, in pieces, each with its share; the documents in `apart` come last.

        Raises:
            ValueError: the text has changed since it was measured; raised at the end of the text at the latest.
        """
        divided = [split for split in SPLITS if split == "train" or split not in self._groups]
        numbers = count()
        for group, some in self._groups.items():
            own = divided if group == "train" else [group]
            of_all = sha256()
            yield from _shares(some, {split: self.num_chars[split] for split in own}, numbers, of_all)
            if of_all.hexdigest() != self._measures[group].digest:
                raise ValueError(f"{some[-1].name} or a file before it changed while it was read; start again")


def _shares(
    files: Sequence[Document], sizes: Mapping[str, int], numbers: Iterator[int], of_all: Any
) -> Iterator[tuple[Share, str]]:
    """Text of documents, cut into splits of these sizes in characters; a split left without text yields one empty
    share. Updates `of_all` with the sha256 of each document."""
    splits = iter(sizes.items())
    split, left = next(splits)
    share = Share(split, 0, 1)
    for file in files:
        for texts, number in zip(file.documents(), numbers, strict=False):
            share, line = Share(split, number, 1), 1
            for text in hashed(texts, of_all):
                while text:
                    while not left:
                        split, left = next(splits, ("", 1))
                        if not split:
                            raise ValueError(f"{file.name} changed while it was read; start again")
                        share = Share(split, number, line)
                        yield share, ""
                    part, text = text[:left], text[left:]
                    yield share, part
                    left -= len(part)
                    line += part.count("\n")
    for empty, _ in splits:
        yield share._replace(split=empty, line=line), ""
