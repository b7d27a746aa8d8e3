"""Lines of text and rows of named columns, from a file or a Hugging Face dataset, read once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqlab_data.documents import find_file
from seqlab_data.hub import is_hub, read_hub
from seqlab_data.reading import UTF_8, Document, lines_of
from seqlab_data.rows import parsed, values_of

JSON = re.compile(r'\s*(\[\s*)?\{\s*"|\s*\[\s*\n')
"""Pattern of the start of a text that consists of JSON objects."""


class Source(NamedTuple):
    """Content of a file or a dataset.

    Attributes:
        text: text of a file, as `read_text` yields it.
        rows: rows of a dataset, which has no text.
    """

    name: str
    text: str = ""
    rows: Sequence[dict[str, Any]] = ()

    @property
    def content(self) -> bytes:
        """Bytes for a digest: the text in UTF-8, regardless of the file's encoding; rows as lines of JSON."""
        return ("\n".join(map(json.dumps, self.rows)) if self.rows else self.text).encode()

    def lines(self) -> list[str]:
        """The lines of the text, as `lines_of` yields them.

        Raises:
            ValueError: a line contains a carriage return, or the text is JSON.
        """
        if JSON.match(self.text):
            raise ValueError(f"{self.name}, line 1 is JSON; give a .jsonl file, a JSON object a line")
        return [*lines_of([self.text], self.name)]

    def values(self, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """Number of each row or JSON line, counted from 1, and its values in the columns.

        Raises:
            ValueError: there is no text, a line is not a JSON object with these columns, or a value cannot be encoded
                as UTF-8.
        """
        for number, row in enumerate(self.rows or self._objects(), start=1):
            yield number, values_of(row, columns, f"{self.name}, line {number}")

    def _objects(self) -> Iterator[Any]:
        for number, line in enumerate(lines_of([self.text], self.name), start=1):
            yield parsed(line, f"{self.name}, line {number}")


def names_columns(path: str) -> bool:
    """True if a path has rows of named columns: a .jsonl file or a dataset."""
    return is_hub(path) or Path(path).suffix.lower() == ".jsonl"


def read_source(path: str, columns: Sequence[str], accepted: str, encoding: str = UTF_8) -> Source:
    """The file at this path, or these columns of a dataset.

    Raises:
        ValueError: the file does not exist (the message names the `accepted` formats), is empty or not in its encoding.
    """
    if is_hub(path):
        return Source(path, rows=[*read_hub(path, columns)])
    return read_file(find_file(path, accepted), encoding)


def read_file(path: Path, encoding: str = UTF_8) -> Source:
    """The text of a file.

    Raises:
        ValueError: the file is empty or not in its encoding.
    """
    return Source(str(path), Document(str(path), path, encoding).read())
