"""Sources of pairs: a file of `source<TAB>target` lines, a source file and a target file, named columns, or built-in
dates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from babel import Locale
from babel.dates import format_date

from seqlab_data.generated import Draw
from seqlab_data.reading import UTF_8
from seqlab_data.records import Source, names_columns, read_source

ACCEPTED = (
    "a file of source<TAB>target lines, a source file and a target file with a comma between them, a .jsonl file, or "
    "hf:DATASET"
)
COLUMNS = ("source", "target")
LOCALES = (
    *("cs", "da", "de", "el", "en_GB", "en_US", "es", "fi", "fr", "hu", "it", "ja"),
    *("ko", "nb", "nl", "pl", "pt_BR", "ro", "ru", "sv", "tr", "uk", "zh"),
)
WIDTHS = ("short", "medium", "long", "full")
FIRST, LAST = date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal()
DATES = {"train": (0, 30_000, range(2, 10)), "val": (1, 1_000, range(1)), "test": (2, 1_000, range(1, 2))}
"""Index of each split, its number of pairs, and the last digits of its dates' ordinals: no date is in two splits."""


class Pair(NamedTuple):
    """A source, its references, and their file or files and line; the first reference is the target."""

    source: str
    references: tuple[str, ...]
    place: str

    @property
    def target(self) -> str:
        return self.references[0]

    @property
    def content(self) -> bytes:
        return self.source.encode()


def read_sides(path: str | Sequence[str], columns: tuple[str, str], encoding: str = UTF_8) -> list[Source]:
    """Reads a file of `source<TAB>target[<TAB>more references]` lines; or a source and a target file of equal length,
    as a list or separated by a comma; or a `.jsonl` file or a dataset (`hf:`) with these columns.

    Raises:
        ValueError: a file is missing, empty or not in its encoding.
    """
    if isinstance(path, str):
        path = [path] if Path(path).expanduser().is_file() else path.split(",")
    if not 1 <= len(path) <= 2:
        raise ValueError(f"{', '.join(path) or 'an empty list'} is not one file or two; give {ACCEPTED}")
    return [read_source(name.strip(), columns, ACCEPTED, encoding) for name in path]


def pairs_in(files: Sequence[Source], columns: tuple[str, str] = COLUMNS) -> list[Pair]:
    """The pairs of one file or of two.

    Args:
        columns: names of the source and target columns, in data with named columns. A target may be a list of
            references.

    Raises:
        ValueError: two files differ in length, or a line lacks its TAB or has an empty source or target.
    """
    for file in files:
        if names_columns(file.name) and len(files) > 1:
            raise ValueError(f"{file.name} has both sides of its pairs and must be given alone; give {ACCEPTED}")
    if names_columns(files[0].name):
        texts = [*_of_columns(files[0], columns)]
    elif len(files) == 1:
        texts = [line.split("\t") for line in files[0].lines()]
        _check_columns(files[0].name, texts)
    else:
        sources, targets = (file.lines() for file in files)
        if len(sources) != len(targets):
            raise ValueError(
                f"{files[0].name} has {len(sources)} lines and {files[1].name} has {len(targets)}, so line "
                f"{min(len(sources), len(targets)) + 1} has no counterpart; give two files of equal length"
            )
        texts = [[source, target] for source, target in zip(sources, targets, strict=True)]
    names = " and ".join(file.name for file in files)
    if {*columns} <= {*texts[0]} and not names_columns(files[0].name):
        raise ValueError(f"{names}, line 1 names columns; leave it out, or give a .jsonl file")
    pairs = [
        Pair(source, tuple(references), f"{names}, line {number}")
        for number, (source, *references) in enumerate(texts, start=1)
    ]
    for pair in pairs:
        if not pair.references:
            wrong = "has no TAB" if pair.source.strip() else "is empty"
            raise ValueError(f"{pair.place} {wrong}; a line is source<TAB>target[<TAB>more references]")
        if not all(text.strip() for text in (pair.source, *pair.references)):
            side = "target" if pair.source.strip() else "source"
            raise ValueError(f"{pair.place} has an empty {side}; both sides of a pair must hold text")
    return pairs


def _check_columns(name: str, texts: list[list[str]]) -> None:
    """Rejects columns that are not text: Tatoeba's ids, a licence, language names in line 1."""
    if all(len(text) == 4 and text[0].isdecimal() and text[2].isdecimal() for text in texts):
        raise ValueError(f"{name} has ids in its first and third column, like Tatoeba's; keep the texts (cut -f 2,4)")
    if all(len(text) == 3 and text[2].startswith("CC-BY") for text in texts):
        raise ValueError(f"{name} has a licence in its third column; keep the texts (cut -f 1,2)")
    first, others = texts[0], [len(text[0].split()) for text in texts[1:]]
    codes = [code for code in first if len(code) == 2 and code in Locale("en").languages]
    if len(codes) == len(first) == 2 and sum(others) > 2 * len(others):  # a dictionary may begin with he<TAB>el
        raise ValueError(f"{name}, line 1 names languages, {' and '.join(first)}; leave it out")


def _of_columns(file: Source, columns: tuple[str, str]) -> Iterator[list[str]]:
    for number, (source, target) in file.values(columns):
        texts = [source, *(target if isinstance(target, list) else [target])]
        if len(texts) == 1 or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{file.name}, line {number} has a {columns[0]!r} that is not a string, or a {columns[1]!r} that "
                "is neither a string nor a list of strings; give text"
            )
        yield texts


def dates(split: str, count: int | None = None) -> Source:
    """Dates as people write them and as ISO 8601, of "train", "val" or "test": `locale date<TAB>ISO date` lines, years
    with four digits (after "date translation", a common first exercise in sequence to sequence). The patterns are those
    of Unicode's CLDR, as Babel has them.

    Args:
        count: number of lines; None = the split's default. A smaller count gives a prefix of a larger one.
    """
    number, usual, digits = DATES[split]
    patterns = [(locale, _pattern(locale, width)) for locale in LOCALES for width in WIDTHS]
    lines = []
    for index in range(usual if count is None else count):
        draw = Draw(number, index)
        tens = FIRST // 10 + 1 + draw.integer(LAST // 10 - FIRST // 10 - 1)
        day = date.fromordinal(10 * tens + digits[draw.integer(len(digits))])
        locale, pattern = patterns[draw.integer(len(patterns))]
        lines.append(f"{locale} {format_date(day, pattern, locale)}\t{day.isoformat()}\n")
    return Source(f"built-in dates, {split}", "".join(lines))


def _pattern(locale: str, width: str) -> str:
    """The locale's date pattern of this width, with two-digit years widened to four digits."""
    parts = re.split("('[^']*')", Locale.parse(locale).date_formats[width].pattern)
    return "".join(part if part.startswith("'") else re.sub("y+", "y", part) for part in parts)
