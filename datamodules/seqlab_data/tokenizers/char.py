"""One token per character (Unicode code point) of the training text."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.base import Tokenizer


class CharTokenizer(Tokenizer):
    """The characters of `text`, sorted by code point, are tokens 4, 5, ...

    Any other character is `unk_id`, which decodes to U+FFFD.
    """

    unk_id = 3

    def __init__(self, text: str) -> None:
        self.alphabet = "".join(sorted(set(text)))
        super().__init__([b"", b"", b"", "\N{REPLACEMENT CHARACTER}".encode(), *(c.encode() for c in self.alphabet)])
        # The last one, past all of Unicode, is where a search ends that finds nothing.
        self._code_points = np.append(_code_points(self.alphabet), np.uint32(0x110000))

    def encode_array(self, text: str) -> NDArray[np.int32]:
        code_points = _code_points(text)
        place = np.searchsorted(self._code_points, code_points)
        known = self._code_points[place] == code_points
        return np.where(known, place + 4, self.unk_id).astype(np.int32)

    def _settings(self) -> dict[str, Any]:
        return {"unk_id": self.unk_id, "alphabet": self.alphabet}

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        tokenizer = cls(settings["alphabet"])
        if tokenizer.alphabet != settings["alphabet"]:
            raise ValueError("the alphabet of this CharTokenizer is not in order")
        return tokenizer


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint32)
