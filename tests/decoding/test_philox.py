"""The generator against the published vectors of Random123 (kat_vectors, philox4x32-10)."""

from __future__ import annotations

import numpy as np
import pytest

from seqlab.decoding.philox import Words, philox4x32, uniform


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter: Words, key: tuple[int, int], expected: Words) -> None:
    assert philox4x32(counter, key) == expected


def test_uniform_places_seed_step_and_row_and_takes_53_bits() -> None:
    w0, w1, _, _ = philox4x32((7, 3, 0, 0), (0x89ABCDEF, 0x01234567))
    assert uniform(0x0123456789ABCDEF, 7, 3) == ((w0 >> 5) * 2**26 + (w1 >> 6)) / 2**53


def test_uniform_is_uniform() -> None:
    draws = np.array([uniform(5, step, row) for step in range(200) for row in range(20)])
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    assert len(set(draws)) == draws.size
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # chi-square, 19 degrees of freedom, 0.1%
