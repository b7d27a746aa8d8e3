"""How much text tokens stand for: the characters, bytes and words that a model's surprise is shared among.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SPACES = b" \t\n\r\v\f"


class TextCounts:
    """Counts of the text of tokens, whatever the tokenizer.

    A word is a run of bytes other than ASCII's spaces and counts in the token that holds its first byte. A newline
    counts as a word too, the <eos> of word-level language models (Merity et al. 2016, "Pointer sentinel mixture
    models", section 4).

    Args:
        token_bytes: the UTF-8 bytes of each token; a token of none begins a text anew.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._bytes = np.array([len(token) for token in token_bytes])
        # All bytes but UTF-8's continuation bytes begin a character.
        self._chars = np.array([sum(byte & 0xC0 != 0x80 for byte in token) for token in token_bytes])
        self._words = np.array([len(token.split()) + token.count(b"\n") for token in token_bytes])
        self._begins_inside = np.array([token[:1] not in SPACES for token in token_bytes])
        self._ends_inside = np.array([bool(token) and token[-1] not in SPACES for token in token_bytes])

    def of(self, before: NDArray[np.int64], tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The characters, the bytes and the words of each of `tokens` (B, T), that of `before` being the one before."""
        goes_on = self._ends_inside[before] & self._begins_inside[tokens]
        return self._chars[tokens], self._bytes[tokens], self._words[tokens] - goes_on
