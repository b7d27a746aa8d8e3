"""A split's tokens on disk, read where they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab_data.checked import BLOCK, Blocks
from seqlab_data.token_cache import TokenFile

SCANNED = 1 << 24
"""Tokens that are looked through at once."""
CHECKED = BLOCK // 4
"""Tokens of which one at least is in each block."""


class TokenStream:
    """The tokens of a file, memory-mapped when they are first read."""

    def __init__(self, file: TokenFile) -> None:
        self.file = file
        self._mapped: NDArray[Any] | None = None
        self._blocks: Blocks | None = None

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens at these places, of any shape.

        Raises:
            ValueError: the file is damaged there.
        """
        return self._tokens(places)[places].astype(np.int64)

    def places_of(self, token: int) -> NDArray[np.int64]:
        """(N,) where this token stands, in order."""
        tokens = self._tokens(np.arange(0, self.file.num_tokens, CHECKED))
        starts = range(0, len(tokens), SCANNED)
        found = [start + np.flatnonzero(tokens[start : start + SCANNED] == token) for start in starts]
        return np.concatenate(found)

    def _tokens(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """All tokens, of which those at these places may be read."""
        if self._mapped is None or self._blocks is None:
            self._mapped = np.memmap(self.file.path, dtype=self.file.dtype, mode="r")
            self._blocks = Blocks(Path(self.file.path), self._mapped.view(np.uint8))
        self._blocks.check(places * self._mapped.itemsize)
        return self._mapped

    def __getstate__(self) -> dict[str, Any]:
        """Without the memory map, which would be pickled as its content."""
        return {**self.__dict__, "_mapped": None, "_blocks": None}
