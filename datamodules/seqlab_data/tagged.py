"""Tagged text for sequence labelling: a LightningDataModule and its file readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.annotated import AnnotatedTextDataModule
from seqlab_data.reading import UTF_8
from seqlab_data.records import Source, names_columns, read_source
from seqlab_data.rows import check_label
from seqlab_data.tokenizers import StoredTokenizer, WordTokenizer

ACCEPTED = (
    "a file of `token tag` lines, with a blank line after each sentence, a CoNLL-U file, a .jsonl file, or hf:DATASET"
)
DOCUMENT_START = "-DOCSTART-"
CONLL_U = 10
"""Columns: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC (https://universaldependencies.org/format.html)."""
NUMBER = re.compile(r"([0-9]+)([-.][0-9]+)?")
"""Pattern of a CoNLL-U ID: of a word, of a multiword token, such as 1-2, or of an empty node, such as 1.1."""


class TaggedSentence(NamedTuple):
    """Words, each with its tag and its line in the file."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...]
    file: str

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
        """File and line of a word."""
        return f"{self.file}, line {self.lines[word]}"


class TaggedTextDataModule(AnnotatedTextDataModule[TaggedSentence]):
    """Sentences with a tag for each word, in CoNLL's columns. docs/data.md has the guarantees.

    Args:
        train, val, test: file of `token ... tag` lines with a blank line after each sentence; a CoNLL-U file, whose
            UPOS column holds the tags; a `.jsonl` file; or a Hugging Face dataset, `hf:NAME_OR_FOLDER@SPLIT`.
        columns: names of the token and tag columns, in data with named columns.
        tokenizer: factory that builds the tokenizer, with one token per word, from the train split's sentences.
        options: arguments of `AnnotatedTextDataModule`.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, a file is invalid.
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
    """Rejects a sentence whose words are not one token each.

    Raises:
        ValueError: a word is empty or contains whitespace, and would become no token or several.
    """
    for k, word in enumerate(sentence.words):
        if word.split() != [word]:
            raise ValueError(
                f"{sentence.place_of(k)} has the token {word!r}, which contains whitespace; give one tag for each word"
            )


def read_tagged(
    path: str, columns: tuple[str, str], encoding: str = UTF_8
) -> tuple[list[TaggedSentence], list[Source]]:
    """The sentences of a path, in order, and the file they come from.

    Args:
        columns: token and tag columns of a `.jsonl` file or a dataset (`hf:`); other files are in CoNLL's columns.

    Raises:
        ValueError: the file is missing, empty or not in its encoding, has no sentences, or has an invalid line.
    """
    file = read_source(path, columns, ACCEPTED, encoding)
    sentences = [*(_of_columns(file, columns) if names_columns(path) else _of_conll(file))]
    if not sentences:
        raise ValueError(f"{file.name} holds no sentence; give {ACCEPTED}")
    _check_not_numbers(sentences)
    if not names_columns(path):
        _check_no_comments(sentences)
    known: set[str] = set()
    for sentence in sentences:
        for k, tag in enumerate(sentence.tags):
            if tag not in known:
                known.add(check_label(tag, sentence.place_of(k)))
    return sentences, [file]


def _of_conll(file: Source) -> Iterator[TaggedSentence]:
    """The sentences of a CoNLL file. Blank lines and `-DOCSTART-` lines end a sentence. The first other line determines
    whether this is CoNLL-U, the number of columns, and whether TABs or spaces separate them."""
    lines = [line.strip(" \t") for line in file.lines()]
    first = next((line for line in lines if line and not line.startswith(("#", DOCUMENT_START))), "")
    divider = "\t" if "\t" in first else " +"
    number_of_first, *others = re.split(divider, first)
    width = 1 + len(others)
    conll_u = width == CONLL_U and NUMBER.fullmatch(number_of_first) is not None
    rows: list[tuple[str, str, int]] = []
    for number, line in enumerate([*lines, ""], start=1):
        place = f"{file.name}, line {number}"
        columns = [column.strip(" ") for column in re.split(divider, line)]
        if columns[0] in ("", DOCUMENT_START):
            if rows:
                words, tags, places = zip(*rows, strict=True)
                yield TaggedSentence(words, tags, places, file.name)
            rows = []
        elif conll_u and line.startswith("#"):
            continue
        elif len(columns) == 1:
            raise ValueError(f"{place} has one column, {columns[0]!r}; a line is a token and its tag")
        elif len(columns) != width:
            raise ValueError(
                f"{place} has {len(columns)} columns, but the first word has {width}; give each word the same number, "
                "and no comments"
            )
        elif not conll_u:
            rows.append((columns[0], columns[-1], number))
        elif not NUMBER.fullmatch(columns[0]):
            raise ValueError(f"{place} has the ID {columns[0]!r}; the first column of CoNLL-U is a number, 1-2 or 1.1")
        elif columns[0].isdecimal():
            _check_conll_u(columns, len(rows), place)
            rows.append((columns[1], columns[3], number))


def _check_conll_u(columns: list[str], before: int, place: str) -> None:
    """Rejects a word that is out of sequence or has no tag."""
    if columns[0] != str(before + 1):
        raise ValueError(
            f"{place} has the ID {columns[0]} after {before} words; words are numbered from 1 on, and a blank line "
            "separates sentences"
        )
    if columns[3] == "_":
        raise ValueError(f"{place} has no tag: its fourth column, UPOS, is _; give {ACCEPTED}")


def _check_not_numbers(sentences: list[TaggedSentence]) -> None:
    """Rejects tokens that are word numbers, or placeholders for words that were removed."""
    name, most = sentences[0].file, max(len(one.words) for one in sentences)
    numbers = tuple(str(k + 1) for k in range(most))
    if most > 1 and all(one.words == numbers[: len(one.words)] for one in sentences):
        raise ValueError(
            f"{name} has the numbers of its words as tokens; a token is the first column, or the second of CoNLL-U's "
            f"{CONLL_U}"
        )
    if all(word == "_" for one in sentences for word in one.words):
        raise ValueError(f"{name} has no words: each is _; give a file that includes its text")


def _check_no_comments(sentences: list[TaggedSentence]) -> None:
    """Rejects a comment that has the same number of columns as a word. A comment comes first in a sentence, and its
    tag is not capitalised and occurs on no word; the tag of a real word such as #NLP also occurs elsewhere."""

    def is_comment(sentence: TaggedSentence, k: int) -> bool:
        return k == 0 and sentence.words[0].startswith("#") and not sentence.tags[0][0].isupper()

    tags = {tag for one in sentences for k, tag in enumerate(one.tags) if not is_comment(one, k)}
    for one in sentences:
        if is_comment(one, 0) and one.tags[0] not in tags:
            raise ValueError(
                f"{one.place_of(0)} begins with {one.words[0]!r} and has the tag {one.tags[0]!r}, which no word has; "
                "remove comments"
            )


def _of_columns(file: Source, columns: tuple[str, str]) -> Iterator[TaggedSentence]:
    for number, (words, tags) in file.values(columns):
        for name, values in zip(columns, (words, tags), strict=True):
            if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
                raise ValueError(
                    f"{file.name}, line {number} has {name} that are not a list of strings; give a string for each word"
                )
        if len(words) != len(tags):
            raise ValueError(
                f"{file.name}, line {number} has {len(words)} {columns[0]}, but {len(tags)} {columns[1]}; give "
                "one for each"
            )
        yield TaggedSentence(tuple(words), tuple(tags), (number,) * len(words), file.name)
