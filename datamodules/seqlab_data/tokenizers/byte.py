"""One token per byte of UTF-8: 256 of them after the specials, for any text in any language."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.base import Tokenizer


class ByteTokenizer(Tokenizer):
    """Byte b of the UTF-8 text is token b + 3. It learns nothing from `text`."""

    def __init__(self, text: str = "") -> None:
        super().__init__([b"", b"", b"", *(bytes([byte]) for byte in range(256))])

    def encode_array(self, text: str) -> NDArray[np.int32]:
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32) + 3

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes."""
        return [byte + 3 for byte in data]

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        return cls()
