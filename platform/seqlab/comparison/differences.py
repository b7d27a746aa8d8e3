"""Differences between the rows of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from seqlab.comparison.rows import Row
from seqlab.comparison.seeds import options_of
from seqlab.tracking.params import CLASS, short_names


class Difference(NamedTuple):
    """A parameter that is not the same in all rows.

    Attributes:
        name: as the runs have it.
        title: the shortest end of it that no other difference has.
        values: of each row, a class by its last name; empty where a row has no such parameter.
        everywhere: whether all rows have it.
    """

    name: str
    title: str
    values: list[str]
    everywhere: bool


def differences(rows: Sequence[Row]) -> list[Difference]:
    """Differences between rows, seeds aside; first the parameters that all rows have, by their titles."""
    options = [options_of(row.run) for row in rows]
    known = {name: [its.get(name) for its in options] for name in chain(*options)}
    differ = {
        name: values
        for name, values in known.items()
        if len(set(values)) > 1 and not name.endswith("init_args")  # of a class without options
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
