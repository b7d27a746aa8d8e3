"""Rows of named columns: lines of JSON, and what is refused in any row."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

SURROGATE = re.compile("[\ud800-\udfff]")


def parsed(line: str, place: str) -> Any:
    """The value that a line of JSON holds.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # of a number with too many digits a plain ValueError
        wrong = f"is not JSON: {error}" if line.strip() else "is empty; a line is a JSON object"
        raise ValueError(f"{place} {wrong}") from error


def values_of(row: Any, columns: Sequence[str], place: str) -> list[Any]:
    """A row's values in the columns.

    Raises:
        ValueError: it is not an object with these columns, or has in them what no UTF-8 text can hold.
    """
    values = _named(row, columns, place)
    _check(json.dumps(values, ensure_ascii=False), place)
    return values


def text_of(row: Any, place: str) -> str:
    """A row's value in the column `text`.

    Raises:
        ValueError: as of `values_of`, or it is not a string.
    """
    [text] = _named(row, ("text",), place)
    if not isinstance(text, str):
        raise ValueError(f"{place} has a 'text' that is not a string, but {text!r:.80}")
    _check(text, place)
    return text


def _named(row: Any, columns: Sequence[str], place: str) -> list[Any]:
    for name in columns:
        if not isinstance(row, dict) or name not in row:
            names = ", ".join(row) if isinstance(row, dict) else "nothing"
            raise ValueError(f"{place} names no {name!r}, it names {names}")
    return [row[name] for name in columns]


def _check(text: str, place: str) -> None:
    if not text.isascii() and SURROGATE.search(text):
        raise ValueError(f"{place} holds a lone surrogate, which no UTF-8 text can hold")
