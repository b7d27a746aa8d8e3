"""Where labelled texts come from: tables, lines that begin with a label, or a folder with a file for each label."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from seqlab_data.json_source import is_json, open_rows, read_json_lines
from seqlab_data.line_source import read_lines, read_text
from seqlab_data.text_source import UTF_8, Document

ACCEPTED = "a .csv, .tsv or .jsonl file, a folder of LABEL.txt files, a file of `label text` lines, or hf:DATASET"


class Example(NamedTuple):
    """A text, its label, and the file and line where they are."""

    text: str
    label: str
    place: str

    @property
    def content(self) -> bytes:
        return self.text.encode()


def find_files(path: str, columns: tuple[str, str], encoding: str = UTF_8) -> list[Document]:
    """The file or dataset of this path, or a folder's `LABEL.txt` files in order.

    Raises:
        ValueError: there is none.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return [open_rows(path, columns, ACCEPTED, encoding)]
    files = sorted(file for file in folder.glob("*.txt") if file.is_file() and not file.name.startswith("."))
    if not files:
        raise ValueError(f"{folder} has no LABEL.txt file; give {ACCEPTED}")
    return [Document(str(file), file, encoding) for file in files]


def read_examples(path: str, *, text: str, label: str, encoding: str = UTF_8) -> list[Example]:
    """The examples of a path, in order.

    Args:
        path: a `.csv` or `.tsv` file whose first line names its columns, a `.jsonl` file of objects, a dataset
            (`hf:`), a folder of `LABEL.txt` files with a text a line, or, with any other suffix, a file of
            `label text` lines.
        text, label: the columns that are read.

    Raises:
        ValueError: a file is missing, empty or not in its encoding, or a line is not what its format takes or lacks a
            text or a label.
    """
    is_folder, columns = Path(path).expanduser().is_dir(), (text, label)
    examples = [
        Example(of_text, of_label, f"{file.name}, line {line}")
        for file in find_files(path, columns, encoding)
        for line, of_text, of_label in (_of_label_file(file) if is_folder else _of_file(file, columns))
    ]
    for example in examples:
        for name, value in (("text", example.text), ("label", example.label)):
            if not value.strip():
                raise ValueError(f"{example.place} has an empty {name}; each line takes a text and a label")
    return examples


def _of_label_file(file: Document) -> Iterator[tuple[int, str, str]]:
    """(line, text, label) of each line."""
    for number, line in enumerate(read_lines(file), start=1):
        yield number, line, Path(file.name).stem


def _of_file(file: Document, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    if is_json(file.name):
        return _of_json_lines(file, columns)
    match Path(file.name).suffix.lower():
        case ".csv":
            return _of_table(file, columns, delimiter=",", quoting=csv.QUOTE_MINIMAL)
        case ".tsv":
            return _of_table(file, columns, delimiter="\t", quoting=csv.QUOTE_NONE)
    return _of_lines(file)


def _of_table(
    file: Document, columns: tuple[str, str], *, delimiter: str, quoting: Literal[0, 3]
) -> Iterator[tuple[int, str, str]]:
    table = csv.reader(io.StringIO(read_text(file), newline=""), delimiter=delimiter, quoting=quoting, strict=True)
    line = 1
    try:
        header = next(table)
        for name in columns:
            if name not in header:
                raise ValueError(f"{file.name}, line 1 names no column {name!r}, it names {', '.join(header)}")
        text, label = map(header.index, columns)
        line = table.line_num + 1
        for row in table:
            if len(row) != len(header):
                raise ValueError(f"{file.name}, line {line} has {len(row)} columns, the first line has {len(header)}")
            yield line, row[text], row[label]
            line = table.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{file.name}, line {line} is not a row of a table: {error}") from error


def _of_json_lines(file: Document, columns: tuple[str, str]) -> Iterator[tuple[int, str, str]]:
    for number, (text, label) in read_json_lines(file, columns):
        if not isinstance(text, str):
            raise ValueError(f"{file.name}, line {number} has a {columns[0]!r} that is not a string, but {text!r}")
        if not isinstance(label, str | int):
            raise ValueError(
                f"{file.name}, line {number} has a {columns[1]!r} that is no string or integer, but {label!r}"
            )
        yield number, text, label if isinstance(label, str) else json.dumps(label)


def _of_lines(file: Document) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(read_lines(file), start=1):
        label, space, text = line.partition(" ")
        if not space:
            wrong = "has no space" if line else "is empty"
            raise ValueError(f"{file.name}, line {number} {wrong}; a line is a label, a space and a text")
        yield number, text, label
