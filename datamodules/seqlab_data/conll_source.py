"""Where tagged sentences come from: files of CoNLL's columns."""

from __future__ import annotations

import re
from typing import NamedTuple

from seqlab_data.line_source import open_file, read_lines
from seqlab_data.text_source import Document

ACCEPTED = "a file of `token tag` lines, with a blank line after each sentence"
DOCUMENT_START = "-DOCSTART-"


class TaggedSentence(NamedTuple):
    """Words and a tag for each, and the file and line of the first."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str
    line: int

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def place(self, word: int = 0) -> str:
        """Where a word stands."""
        return f"{self.file}, line {self.line + word}"


def find_file(path: str) -> Document:
    """The file of this path.

    Raises:
        ValueError: there is none.
    """
    return open_file(path, ACCEPTED)


def read_conll(path: str) -> list[TaggedSentence]:
    """The sentences of a file, in order: its columns are separated by tabs where a line has one, else by spaces. The
    first is the token, the last its tag. Blank lines and `-DOCSTART-` lines end a sentence.

    Raises:
        ValueError: the file is missing, empty or not UTF-8, holds no sentence, or a line has one column.
    """
    file = find_file(path)
    sentences: list[TaggedSentence] = []
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*read_lines(file), ""], start=1):
        columns = _columns(line)
        if columns[0] not in ("", DOCUMENT_START):
            if len(columns) == 1:
                raise ValueError(
                    f"{file.name}, line {number} has one column, {columns[0]!r}; a line is a token and its tag"
                )
            rows.append((columns[0], columns[-1]))
        elif rows:
            words, tags = zip(*rows, strict=True)
            sentences.append(TaggedSentence(words, tags, file.name, number - len(rows)))
            rows = []
    if not sentences:
        raise ValueError(f"{file.name} holds no sentence; give {ACCEPTED}")
    return sentences


def _columns(line: str) -> list[str]:
    """One empty column of a blank line."""
    line = line.strip(" \t")
    return [column.strip(" ") for column in line.split("\t")] if "\t" in line else re.split(" +", line)
