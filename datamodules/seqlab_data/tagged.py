"""Tagged text for sequence labelling: a LightningDataModule, and where the sentences are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.annotated import AnnotatedTextDataModule
from seqlab_data.reading import UTF_8
from seqlab_data.records import Source, names_columns, read_source
from seqlab_data.tokenizers import StoredTokenizer, WordTokenizer

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

    @property
    def place(self) -> str:
        return self.place_of(0)

    def place_of(self, word: int) -> str:
        """Where a word stands."""
        return f"{self.file}, line {self.line + self.lines_a_word * word}"


class TaggedTextDataModule(AnnotatedTextDataModule[TaggedSentence]):
    """Sentences with a tag for each word, in CoNLL's columns. docs/data.md has the guarantees.

    Args:
        train, val, test: a file of lines `token ... tag` each, a blank line after each sentence; a `.jsonl` file; or a
            Hugging Face dataset, `hf:NAME_OR_FOLDER@SPLIT`.
        columns: of tokens and of tags, where they have names.
        tokenizer: makes the tokenizer, of a token for each word, from the train split's sentences.
        options: those of `AnnotatedTextDataModule`.

    Raises:
        ValueError: an argument is out of range; when the data is first used, what is wrong with a file.
    """

    kind = "tagged"

    def __init__(
        self,
        train: str,
        *,
        columns: tuple[str, str] = ("tokens", "tags"),
        tokenizer: Callable[[str], WordTokenizer | StoredTokenizer] = WordTokenizer,
        **options: Any,
    ) -> None:
        super().__init__(train, tokenizer=tokenizer, **options)
        self.columns = columns

    def _read_path(self, path: str) -> tuple[list[TaggedSentence], list[Source]]:
        return read_tagged(path, self.columns, self.encoding)

    def _labels_of(self, example: TaggedSentence) -> tuple[str, ...]:
        return example.tags

    def _target(self, example: TaggedSentence) -> NDArray[np.int32]:
        check_words(example)
        classes = [self.class_at(example.place_of(k), tag) for k, tag in enumerate(example.tags)]
        return np.array(classes, dtype=np.int32)  # (T,)

    def identity(self) -> dict[str, int | str]:
        return {**super().identity(), "columns": ", ".join(self.columns)}


def check_words(sentence: TaggedSentence) -> None:
    """Refuses a sentence whose words are not one token each.

    Raises:
        ValueError: a word has whitespace in it, and would be none or several.
    """
    for k, word in enumerate(sentence.words):
        if word.split() != [word]:
            raise ValueError(
                f"{sentence.place_of(k)} has the token {word!r}, in which there is whitespace; a tag is of one word"
            )


def read_tagged(
    path: str, columns: tuple[str, str], encoding: str = UTF_8
) -> tuple[list[TaggedSentence], list[Source]]:
    """The sentences of a path, in order, and the file that they are from.

    Args:
        columns: of tokens and of tags, in a `.jsonl` file or a dataset (`hf:`); other files are in CoNLL's columns.

    Raises:
        ValueError: it is missing, empty or not in its encoding, holds no sentence, or what is wrong with a line.
    """
    file = read_source(path, columns, ACCEPTED, encoding)
    sentences = [*(_of_columns(file, columns) if names_columns(path) else _of_conll(file))]
    if not sentences:
        raise ValueError(f"{file.name} holds no sentence; give {ACCEPTED}")
    return sentences, [file]


def _of_conll(file: Source) -> Iterator[TaggedSentence]:
    """Columns are separated by tabs where a line has one, else by spaces: the first is the token, the last its tag.
    Blank lines and `-DOCSTART-` lines end a sentence."""
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*file.lines(), ""], start=1):
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


def _of_columns(file: Source, columns: tuple[str, str]) -> Iterator[TaggedSentence]:
    for number, (words, tags) in file.values(columns):
        for name, values in zip(columns, (words, tags), strict=True):
            if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
                raise ValueError(f"{file.name}, line {number} has a {name!r} that is not a list of strings")
        if len(words) != len(tags):
            raise ValueError(f"{file.name}, line {number} has {len(words)} {columns[0]}, but {len(tags)} {columns[1]}")
        yield TaggedSentence(tuple(words), tuple(tags), file.name, number, lines_a_word=0)
