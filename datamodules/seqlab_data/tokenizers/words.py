"""Distinct words of a long text, so that each is encoded only once."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

COMPARED = 32
"""Maximum length, in bytes, of a word that is deduplicated; every occurrence of a longer word counts as new."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: Knuth's multiplicative hash (The Art of Computer Programming, 6.4)."""


def distinct_words(data: bytes) -> tuple[list[bytes], NDArray[np.intp]]:
    """The distinct words of a text, and (N,) the index of each word in text order. A newline is a word, and so is the
    character U+2581. Any other word ends before these and before spaces, and includes its leading spaces.

    Args:
        data: non-empty text in UTF-8. A few words may be returned twice.
    """
    begins = _begins(np.frombuffer(data, np.uint8))
    sizes = np.diff(begins, append=len(data))
    padded = data + bytes(COMPARED + 8)
    eights = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))  # the eight bytes starting at each offset
    masks = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
    parts = [eights[begins + i] & masks[np.clip(sizes - i, 0, 8)] for i in range(0, COMPARED, 8)]  # (N,) each
    mixed = np.zeros(len(begins), np.uint64)
    for part in parts:
        mixed = (mixed ^ part) * SPREAD
        mixed ^= mixed >> np.uint64(32)
    # The hash table has several times more slots than words: equal words share a slot, and collisions are rare.
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
    """Offsets where words begin."""
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
    """(T,) concatenated ids of the words with these indices, (N,)."""
    sizes = np.fromiter(map(len, ids), np.intp, len(ids))
    flat = np.fromiter(chain.from_iterable(ids), np.int32, int(sizes.sum()))
    begins = np.cumsum(sizes) - sizes
    lengths = sizes[numbers]
    ends = np.cumsum(lengths)
    places = np.repeat(begins[numbers] - (ends - lengths), lengths) + np.arange(ends[-1])
    return flat.take(places)
