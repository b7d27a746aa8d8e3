"""Differences between the rows of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from seqlab.comparison.rows import Row
from seqlab.comparison.seeds import options_of
from seqlab.tracking.params import CLASS, short_names


class Difference(NamedTuple):
    """A parameter that differs between rows.

    Attributes:
        name: full name of the parameter.
        title: shortest unique suffix of the name.
        values: value in each row, classes by their short names; empty if a row does not have the parameter.
        everywhere: whether all rows have the parameter.
    """

    name: str
    title: str
    values: list[str]
    everywhere: bool


def differences(rows: Sequence[Row]) -> list[Difference]:
    """Differences between rows except seeds, sorted by title; parameters that all rows have come first."""
    options = [options_of(row.run) for row in rows]
    known = {name: [its.get(name) for its in options] for name in dict.fromkeys(chain(*options))}
    differ = {
        name: values
        for name, values in known.items()
        if len(set(values)) > 1 and not name.endswith("init_args")  # init_args of a class without options
    }
    titles = short_names(differ)
    found = [
        Difference(name, titles[name], [_shown(name, value) for value in values], None not in values)
        for name, values in differ.items()
    ]
    return sorted(found, key=lambda one: (not one.everywhere, one.title))


def _shown(name: str, value: str | None) -> str:
    value = value or ""
    return value.rpartition(".")[2] if name.endswith(CLASS) else value
