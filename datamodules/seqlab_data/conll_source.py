"""Where tagged sentences come from: files of CoNLL's columns, or rows of tokens and tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from seqlab_data.json_source import is_json, open_rows, read_json_lines
from seqlab_data.line_source import read_lines
from seqlab_data.text_source import UTF_8, Document

ACCEPTED = "a file of `token tag` lines, with a blank line after each sentence, a .jsonl file, or hf:DATASET"
DOCUMENT_START = "-DOCSTART-"


class TaggedSentence(NamedTuple):
    """Words and a tag for each, and the file and line of the first; of the others, `lines_a_word` further on each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str
    line: int
    lines_a_word: int = 1

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def content(self) -> bytes:
        return self.text.encode()

    def place(self, word: int = 0) -> str:
        """Where a word stands."""
        return f"{self.file}, line {self.line + self.lines_a_word * word}"


def find_file(path: str, columns: tuple[str, str], encoding: str = UTF_8) -> Document:
    """The file or dataset of this path.

    Raises:
        ValueError: there is none.
    """
    return open_rows(path, columns, ACCEPTED, encoding)


def read_tagged(path: str, columns: tuple[str, str], encoding: str = UTF_8) -> list[TaggedSentence]:
    """The sentences of a path, in order.

    Args:
        columns: of tokens and of tags, in a `.jsonl` file or a dataset (`hf:`); other files are in CoNLL's columns.

    Raises:
        ValueError: it is missing, empty or not in its encoding, holds no sentence, or what is wrong with a line.
    """
    file = find_file(path, columns, encoding)
    sentences = [*(_of_json_lines(file, columns) if is_json(path) else _of_conll(file))]
    if not sentences:
        raise ValueError(f"{file.name} holds no sentence; give {ACCEPTED}")
    return sentences


def _of_conll(file: Document) -> Iterator[TaggedSentence]:
    """Columns are separated by tabs where a line has one, else by spaces: the first is the token, the last its tag.
    Blank lines and `-DOCSTART-` lines end a sentence."""
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
            yield TaggedSentence(words, tags, file.name, number - len(rows))
            rows = []


def _columns(line: str) -> list[str]:
    """One empty column of a blank line."""
    line = line.strip(" \t")
    return [column.strip(" ") for column in line.split("\t")] if "\t" in line else re.split(" +", line)


def _of_json_lines(file: Document, columns: tuple[str, str]) -> Iterator[TaggedSentence]:
    for number, (words, tags) in read_json_lines(file, columns):
        for name, values in zip(columns, (words, tags), strict=True):
            if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
                raise ValueError(f"{file.name}, line {number} has a {name!r} that is not a list of strings")
        if len(words) != len(tags):
            raise ValueError(f"{file.name}, line {number} has {len(words)} {columns[0]}, but {len(tags)} {columns[1]}")
        yield TaggedSentence(tuple(words), tuple(tags), file.name, number, lines_a_word=0)
