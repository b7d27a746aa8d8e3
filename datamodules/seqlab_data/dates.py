"""Dates as people write them, and as ISO 8601: a set of pairs that needs no file (after "date translation", a common
first exercise in sequence to sequence). The patterns are those of Unicode's CLDR, as Babel has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from babel import Locale
from babel.dates import format_date

from seqlab_data.generated import Draw
from seqlab_data.text_source import Document

LOCALES = (
    *("cs", "da", "de", "el", "en_GB", "en_US", "es", "fi", "fr", "hu", "it", "ja"),
    *("ko", "nb", "nl", "pl", "pt_BR", "ro", "ru", "sv", "tr", "uk", "zh"),
)
WIDTHS = ("short", "medium", "long", "full")
FIRST, LAST = date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal()
SPLITS = {"train": (0, 30_000, range(2, 10)), "val": (1, 1_000, range(1)), "test": (2, 1_000, range(1, 2))}
"""The number of each split, its pairs, and the last digits of its dates' ordinals: no date is in two splits."""


@dataclass(frozen=True)
class Dates(Document):
    """The pairs of a split, `locale date<TAB>ISO date` lines, years with four digits."""

    def read_bytes(self) -> bytes:
        number, count, digits = SPLITS[self.name.split()[-1]]
        patterns = [(locale, _pattern(locale, width)) for locale in LOCALES for width in WIDTHS]
        lines = []
        for index in range(count):
            draw = Draw(number, index)
            tens = FIRST // 10 + 1 + draw.integer(LAST // 10 - FIRST // 10 - 1)
            day = date.fromordinal(10 * tens + digits[draw.integer(len(digits))])
            locale, pattern = patterns[draw.integer(len(patterns))]
            lines.append(f"{locale} {format_date(day, pattern, locale)}\t{day.isoformat()}\n")
        return "".join(lines).encode()


def dates(split: str) -> Dates:
    """The document of "train", "val" or "test"."""
    return Dates(f"built-in dates, {split}", None)


def _pattern(locale: str, width: str) -> str:
    """The locale's pattern of this width, with a year of four digits where it has two."""
    parts = re.split("('[^']*')", Locale.parse(locale).date_formats[width].pattern)
    return "".join(part if part.startswith("'") else re.sub("y+", "y", part) for part in parts)
