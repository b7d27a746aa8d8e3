"""Rows of named columns: JSON lines, and validation of rows of any source."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from seqlab_data.reading import MARK, SURROGATE

NOT_IN_LABELS = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f\ufeff]")
"""Characters rejected in labels. Labels are printed in tables, so different labels must look different."""


def parsed(line: str, place: str) -> Any:
    """The value of a JSON line.

    Raises:
        ValueError: the line is not JSON, or an object in it has a duplicate name.
    """
    if not line.strip():
        raise ValueError(f"{place} is empty; a line is a JSON object")
    try:
        return json.loads(line, object_pairs_hook=_object)
    except _TwiceError as error:
        raise ValueError(f"{place} has two values named {error}; give one") from error
    except (ValueError, RecursionError) as error:  # a number with too many digits raises a plain ValueError
        raise ValueError(f"{place} is not JSON: {error}; a line is a JSON object") from error


def check_names(names: Sequence[str], wanted: Sequence[str], place: str) -> None:
    """Rejects columns if a wanted one is missing or appears twice.

    Raises:
        ValueError: a column is missing or duplicated; the message lists the columns found.
    """
    for name in wanted:
        if names.count(name) != 1:
            wrong, remedy = "no column", "name one of these"
            if name in names:
                wrong, remedy = "two columns", "give each a different name"
            raise ValueError(f"{place} has {wrong} {name}; it has {', '.join(names) or 'none'}; {remedy}")


def check_label(label: str, place: str) -> str:
    """Returns a label unchanged.

    Raises:
        ValueError: the label is empty, begins or ends with a space, or contains a line break, a TAB or a similar
            character.
    """
    if not label.strip():
        raise ValueError(f"{place} has an empty label; give one, or leave the row out")
    if label != label.strip() or NOT_IN_LABELS.search(label):
        raise ValueError(
            f"{place} has the label {label!r}; a label begins and ends with a letter, digit or sign, and has no line "
            "break, TAB or control character in it"
        )
    return label


def values_of(row: Any, columns: Sequence[str], place: str) -> list[Any]:
    """A row's values in the columns.

    Raises:
        ValueError: the row is not an object with these columns, or a value cannot be encoded as UTF-8.
    """
    values = _named(row, columns, place)
    _check(json.dumps(values, ensure_ascii=False), place)
    return values


def text_of(row: Any, place: str) -> str:
    r"""A row's value in the column `text`, read like a file's: without a byte-order mark, and with "\n" for "\r\n".

    Raises:
        ValueError: as in `values_of`, or the value is not a string.
    """
    [text] = _named(row, ("text",), place)
    if not isinstance(text, str):
        raise ValueError(f"{place} has the text {text!r:.80}, which is not a string; give text")
    _check(text, place)
    return text.removeprefix(MARK).replace("\r\n", "\n")


def _named(row: Any, columns: Sequence[str], place: str) -> list[Any]:
    for name in columns:
        if not isinstance(row, dict) or name not in row:
            names = ", ".join(row) if isinstance(row, dict) else "nothing"
            raise ValueError(f"{place} has no {name!r}; it has {names}; give every row the columns that are read")
    return [row[name] for name in columns]


class _TwiceError(ValueError):
    """A name appears twice in an object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(repr(next(name for name in names if names.count(name) > 1)))
    return found


def _check(text: str, place: str) -> None:
    if not text.isascii() and SURROGATE.search(text):
        raise ValueError(f"{place} contains a lone surrogate, which UTF-8 cannot encode; remove it")
