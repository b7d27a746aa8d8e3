"""Tokens of the cases, which together read every part of a vocabulary.

R rows, T length.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray


class DrawnTokens:
    """Successive draws that traverse a vocabulary in even strides, starting at the last id: every id is read, or at
    least some ids in every region.

    Args:
        generator: generator of the order within a draw.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator, self._num_drawn = generator, 0

    def tokens(self, vocab_size: int, pad_mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Tokens (R, T) of a vocabulary, 0 at pads."""
        stride = next(k for k in range(max(int(vocab_size * 0.618), 1), 2 * vocab_size) if gcd(k, vocab_size) == 1)
        count = int(pad_mask.sum())
        drawn = (vocab_size - 1 + stride * np.arange(self._num_drawn, self._num_drawn + count)) % vocab_size
        self._num_drawn += count
        tokens = np.zeros(pad_mask.shape, dtype=np.int64)
        tokens[pad_mask] = self._generator.permutation(drawn)
        return tokens
