"""Philox4x32-10, the counter-based generator of all sampling.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". The same (seed, step, row) yields the same
number on every machine and in every language.
"""

from __future__ import annotations

_MULTIPLIER = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF

Words = tuple[int, int, int, int]


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Ten rounds, which map four 32-bit counter words and two 32-bit key words to four random 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low, high = _MULTIPLIER[0] * c0, _MULTIPLIER[1] * c2
        c0, c1, c2, c3 = (high >> 32) ^ c1 ^ k0, high & _MASK, (low >> 32) ^ c3 ^ k1, low & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, step: int, row: int) -> float:
    """A number in [0, 1) with 53 random bits, for the token at `step` of `row`.

    Key = the 64-bit seed, low word first; counter = (step, row, 0, 0). From the first two output words w0, w1:
    ((w0 >> 5) * 2^26 + (w1 >> 6)) / 2^53.
    """
    w0, w1, _, _ = philox4x32((step, row, 0, 0), (seed & _MASK, seed >> 32))
    return ((w0 >> 5) * 67108864 + (w1 >> 6)) / 9007199254740992
