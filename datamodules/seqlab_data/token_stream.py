"""Random access to a split's tokens on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab_data.checked import BLOCK, Blocks
from seqlab_data.token_cache import TokenFile

SCANNED = 1 << 24
"""Number of tokens scanned at a time."""
CHECKED = BLOCK // 4
"""Stride in tokens that visits every block at least once."""


class TokenStream:
    """The tokens of a file, memory-mapped on first access."""

    def __init__(self, file: TokenFile) -> None:
        self.file = file
        self._mapped: NDArray[Any] | None = None
        self._blocks: Blocks | None = None

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens at these positions, in the shape of `places`.

        Raises:
            ValueError: the file is damaged at one of them.
        """
        return self._tokens(places)[places].astype(np.int64)

    def places_of(self, token: int) -> NDArray[np.int64]:
        """(N,) positions of this token, in ascending order."""
        tokens = self._tokens(np.arange(0, self.file.num_tokens, CHECKED))
        starts = range(0, len(tokens), SCANNED)
        found = [start + np.flatnonzero(tokens[start : start + SCANNED] == token) for start in starts]
        return np.concatenate(found)

    def _tokens(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """The memory-mapped tokens, after checking the blocks that contain these positions."""
        if self._mapped is None or self._blocks is None:
            self._mapped = np.memmap(self.file.path, dtype=self.file.dtype, mode="r")
            self._blocks = Blocks(Path(self.file.path), self._mapped.view(np.uint8))
        self._blocks.check(places * self._mapped.itemsize)
        return self._mapped

    def __getstate__(self) -> dict[str, Any]:
        """Excludes the memory map, which would be pickled with its full content."""
        return {**self.__dict__, "_mapped": None, "_blocks": None}
