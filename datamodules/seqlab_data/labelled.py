"""Labelled texts for classification: a LightningDataModule and its file readers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.annotated import AnnotatedTextDataModule
from seqlab_data.reading import UTF_8, lines_of
from seqlab_data.records import Source, names_columns, read_file, read_source
from seqlab_data.rows import check_label, check_names
from seqlab_data.word_order import WordOrder, check_word_order, digest_in_order, in_order

ACCEPTED = "a .csv, .tsv or .jsonl file, a folder of LABEL.txt files, a file of `label text` lines, or hf:DATASET"
FASTTEXT = "__label__"
LONGEST_CELL = 2**31 - 1
"""Maximum number of characters in a CSV cell; the default limit of `csv` is 131,072."""


LABEL = re.compile(r"([^ \t]*)([ \t]?)(.*)", re.DOTALL)


class Example(NamedTuple):
    """A text, its label, and their file and line."""

    text: str
    label: str
    place: str

    @property
    def content(self) -> bytes:
        return self.text.encode()


class LabelledTextDataModule(AnnotatedTextDataModule[Example]):
    """Texts with one class label each. docs/data.md has the guarantees.

    Args:
        train, val, test: `.csv`, `.tsv` or `.jsonl` file with named columns, a folder of `LABEL.txt` files, a file of
            `label text` or `label<TAB>text` lines, or a Hugging Face dataset, `hf:NAME_OR_FOLDER@SPLIT`.
        text, label: names of the text and label columns.
        word_order: "natural", or "shuffled": the words of each text in an order determined by `seed` and the row.
        options: arguments of `AnnotatedTextDataModule`.

    Raises:
        ValueError: an argument is out of range, or, when the data is first used, a file is invalid.
    """

    kind = "labelled"

    def __init__(
        self,
        train: str,
        *,
        text: str = "text",
        label: str = "label",
        word_order: WordOrder = "natural",
        **options: Any,
    ) -> None:
        super().__init__(train, **options)
        self.word_order = check_word_order(word_order)
        self.text = text
        self.label = label

    def _read_path(self, path: str) -> tuple[list[Example], list[Source]]:
        return read_examples(path, text=self.text, label=self.label, encoding=self.encoding)

    @property
    def _digest(self) -> str:
        return digest_in_order(super()._digest, self.word_order)

    def _texts(self) -> Mapping[str, Sequence[str]]:
        return in_order(super()._texts(), self.word_order, self.seed)

    def _labels_of(self, example: Example) -> tuple[str, ...]:
        return (example.label,)

    def _target(self, example: Example) -> NDArray[np.int64]:
        return np.array(self.class_at(example.place, example.label))  # ()

    def identity(self) -> dict[str, int | str]:
        return {**super().identity(), "columns": f"{self.text}, {self.label}"}


def read_examples(path: str, *, text: str, label: str, encoding: str = UTF_8) -> tuple[list[Example], list[Source]]:
    """The examples of a path, in order, and the files they come from.

    Args:
        path: a `.csv` or `.tsv` file whose first line names its columns, a `.jsonl` file of objects, a dataset
            (`hf:`), a folder of `LABEL.txt` files with one text per line, or, with any other suffix, a file whose lines
            consist of a label, a space or a TAB, and a text.
        text, label: names of the text and label columns.

    Raises:
        ValueError: a file is missing, empty or not in its encoding, or a line is malformed or lacks a text or a label.
    """
    folder, columns = Path(path).expanduser(), (text, label)
    if folder.is_dir():
        read = _of_label_file
        found = sorted(file for file in folder.glob("*.txt") if file.is_file() and not file.name.startswith("."))
        if not found:
            raise ValueError(f"{folder} has no LABEL.txt file; give {ACCEPTED}")
        files = [read_file(file, encoding) for file in found]
    else:
        read, files = _of_file, [read_source(path, columns, ACCEPTED, encoding)]
    examples = [
        Example(of_text, of_label, f"{file.name}, line {line}")
        for file in files
        for line, of_text, of_label in read(file, columns)
    ]
    for example in examples:
        if not example.text.strip():
            raise ValueError(f"{example.place} has an empty text; each row takes a text and a label")
        check_label(example.label, example.place)
    if not examples:
        raise ValueError(f"{path} has no row below the names of its columns; give rows of a text and a label")
    return examples, files


def _of_label_file(file: Source, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    """(line, text, label) of each line."""
    for number, line in enumerate(file.lines(), start=1):
        yield number, line, Path(file.name).stem


def _of_file(file: Source, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    if names_columns(file.name):
        return _of_columns(file, columns)
    match Path(file.name).suffix.lower():
        case ".csv":
            return _of_table(file, columns, delimiter=",", quoting=csv.QUOTE_MINIMAL)
        case ".tsv":
            return _of_table(file, columns, delimiter="\t", quoting=csv.QUOTE_NONE)
    return _of_lines(file, columns)


def _of_table(
    file: Source, columns: tuple[str, str], *, delimiter: str, quoting: Literal[0, 3]
) -> Iterator[tuple[int, str, str]]:
    csv.field_size_limit(LONGEST_CELL)
    lines = (line + "\n" for line in lines_of([file.text], file.name))
    table = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    line = 1
    try:
        header = next(table)
        check_names(header, columns, f"{file.name}, line 1")
        text, label = map(header.index, columns)
        line = table.line_num + 1
        for row in table:
            if len(row) != len(header):
                raise ValueError(
                    f"{file.name}, line {line} has {len(row)} columns, the first line has {len(header)}; quote a cell "
                    "that has a comma in it, and leave out empty lines"
                )
            yield line, row[text], row[label]
            line = table.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{file.name}, line {line} is not a row of a table: {error}; a quote in a quoted cell is written twice"
        ) from error


def _of_columns(file: Source, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    for number, (text, label) in file.values(columns):
        if not isinstance(text, str):
            raise ValueError(
                f"{file.name}, line {number} has the {columns[0]} {text!r:.80}, which is not a string; give text"
            )
        if not isinstance(label, str | int):
            raise ValueError(
                f"{file.name}, line {number} has the {columns[1]} {label!r:.80}, which is neither a string nor an "
                "integer; give one label"
            )
        yield number, text, label if isinstance(label, str) else json.dumps(label)


def _of_lines(file: Source, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    """(line, text, label) of each line. The first line decides whether labels have fastText's prefix; unlike in
    fastText, a line must have one label, at its start."""
    fasttext = file.text.startswith(FASTTEXT)
    for number, line in enumerate(file.lines(), start=1):
        place = f"{file.name}, line {number}"
        label, divider, text = LABEL.match(line).groups()  # type: ignore[union-attr]
        if not divider:
            wrong = "has no space and no TAB" if line else "is empty"
            raise ValueError(f"{place} {wrong}; a line is a label, a space or a TAB, and a text")
        if "\t" in text:
            raise ValueError(
                f"{place} has a TAB in its text, which makes its label ambiguous; give one TAB, after the label, or a "
                ".tsv file that names its columns"
            )
        if number == 1 and {label, text} == {*columns}:
            raise ValueError(f"{place} names columns; give the file a name that ends with .tsv or .csv")
        more = [word for word in text.split() if word.startswith(FASTTEXT)]
        if more or fasttext != label.startswith(FASTTEXT):
            wrong = f"has the label {more[0]} in its text" if more else f"has the label {label!r}, unlike line 1"
            raise ValueError(
                f"{place} {wrong}; a line begins with its one label, {FASTTEXT}NAME in every line or in none"
            )
        yield number, text, label
