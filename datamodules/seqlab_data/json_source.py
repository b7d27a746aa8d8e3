"""Rows of named columns as lines of JSON: a .jsonl file, or a split of a Hugging Face dataset."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seqlab_data.hub_source import HubDocument, is_hub
from seqlab_data.line_source import open_file, read_lines
from seqlab_data.text_source import UTF_8, Document

SURROGATE = re.compile("[\ud800-\udfff]")


def is_json(path: str) -> bool:
    """Whether a path is of one of the two."""
    return is_hub(path) or Path(path).suffix.lower() == ".jsonl"


def open_rows(path: str, columns: Sequence[str], accepted: str, encoding: str = UTF_8) -> Document:
    """The file of this path, or the split of a dataset, of which these columns are read.

    Raises:
        ValueError: there is no such file; says what is `accepted`.
    """
    return HubDocument(path, None, columns=tuple(columns)) if is_hub(path) else open_file(path, accepted, encoding)


def read_json_lines(document: Document, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    """Of each line its number, from 1 on, and its values in the columns.

    Raises:
        ValueError: the document is empty or not in its encoding, or a line is not a JSON object with these columns, or
            has in them what no UTF-8 text can hold.
    """
    for number, line in enumerate(read_lines(document), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            wrong = f"is not JSON: {error}" if line.strip() else "is empty; a line is a JSON object"
            raise ValueError(f"{document.name}, line {number} {wrong}") from error
        names = ", ".join(row) if isinstance(row, dict) else "nothing"
        for name in columns:
            if not isinstance(row, dict) or name not in row:
                raise ValueError(f"{document.name}, line {number} names no {name!r}, it names {names}")
        values = [row[name] for name in columns]
        if SURROGATE.search(json.dumps(values, ensure_ascii=False)):
            raise ValueError(f"{document.name}, line {number} holds a lone surrogate, which no UTF-8 text can hold")
        yield number, values
