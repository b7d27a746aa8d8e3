"""The words of a long text, each of which is looked at once however often it stands there."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

COMPARED = 32
"""Bytes of the longest word that is looked for; a longer one is new wherever it stands."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: Knuth's multiplicative hash (The Art of Computer Programming, 6.4)."""


def distinct_words(data: bytes) -> tuple[list[bytes], NDArray[np.intp]]:
    """The words of a text and (N,) the number of each that stands in it, in order. A newline is a word, and so is the
    character U+2581; any other ends before these and before spaces, and holds the spaces that it begins with.

    Args:
        data: a text in UTF-8, not empty. A few words may be given twice.
    """
    begins = _begins(np.frombuffer(data, np.uint8))
    sizes = np.diff(begins, append=len(data))
    padded = data + bytes(COMPARED + 8)
    eights = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # the eight bytes from each place on
    masks = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
    parts = [eights[begins + i] & masks[np.clip(sizes - i, 0, 8)] for i in range(0, COMPARED, 8)]  # (N,) each
    mixed = np.zeros(len(begins), np.uint64)
    for part in parts:
        mixed = (mixed ^ part) * SPREAD
        mixed ^= mixed >> np.uint64(32)
    # In a table with room for several times as many, equal words find one of them, and few find another word.
    bits = (4 * len(begins)).bit_length()
    slots = mixed * SPREAD >> np.uint64(64 - bits)
    places = np.arange(len(begins))
    table = np.empty(1 << bits, np.intp)
    table[slots] = places
    found = table[slots]
    equal = (sizes <= COMPARED) & (sizes[found] == sizes)
    for part in parts:
        equal &= part[found] == part
    found = np.where(equal, found, places)
    first = found == places
    spans = zip(begins[first].tolist(), (begins + sizes)[first].tolist(), strict=True)
    return [data[begin:end] for begin, end in spans], (np.cumsum(first) - 1)[found]


def _begins(text: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Places where words begin."""
    space, newline = text == ord(" "), text == ord("\n")
    begins = newline.copy()
    begins[0] = True
    begins[1:] |= newline[:-1] | space[1:] & ~space[:-1]
    first, second, third = "\u2581".encode()
    marks = np.flatnonzero((text[:-2] == first) & (text[1:-1] == second) & (text[2:] == third))
    begins[marks] = True
    begins[marks[marks + 3 < len(text)] + 3] = True
    return np.flatnonzero(begins)


def joined(ids: list[list[int]], numbers: NDArray[np.intp]) -> NDArray[np.int32]:
    """(T,) the ids of the words with these numbers, (N,), end to end."""
    sizes = np.fromiter(map(len, ids), np.intp, len(ids))
    flat = np.fromiter(chain.from_iterable(ids), np.int32, int(sizes.sum()))
    begins = np.cumsum(sizes) - sizes
    lengths = sizes[numbers]
    ends = np.cumsum(lengths)
    places = np.repeat(begins[numbers] - (ends - lengths), lengths) + np.arange(ends[-1])
    return flat.take(places)
