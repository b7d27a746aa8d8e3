"""A tokenizer that was stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.base import Tokenizer, load_tokenizer, tokenizer_from_dict


class StoredTokenizer(Tokenizer):
    """Makes the tokenizer that a run or a bundle has stored, whatever the text: for data that its model is to read.

    Args:
        path: `tokenizer.json` of a run's artifacts, or the folder `tokenizer` of a bundle.

    Raises:
        ValueError: there is none, or it is damaged.
    """

    def __new__(cls, text: str, *, path: str) -> Any:
        found = Path(path).expanduser()
        if found.is_dir():
            return load_tokenizer(found)
        if not found.is_file():
            raise ValueError(f"{path} is no tokenizer; give a run's tokenizer.json, or a bundle's folder tokenizer")
        try:
            return tokenizer_from_dict(json.loads(found.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path} is not a tokenizer file: {error}") from error

    def __init__(self, text: str, *, path: str) -> None:
        """Is not called: what is made is of another class."""

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        raise TypeError("it is stored as the tokenizer that it made")

    def encode_array(self, text: str) -> NDArray[np.int32]:
        raise AssertionError("no object is of this class")
