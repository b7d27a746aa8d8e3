"""The tokens that begin and end a text, as transformers' `generate` finds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from seqlab.models.pretrained.config import read_object


class SpecialIds(NamedTuple):
    """Tokens of a checkpoint folder.

    Attributes:
        bos: the token that begins a text; None = there is none.
        eos: each of these ends a text; there may be none.
    """

    bos: int | None
    eos: tuple[int, ...]


def read_special_ids(folder: Path, vocab_size: int) -> SpecialIds:
    """Reads `generation_config.json` or, in a folder without one, `config.json`. No token is known by its name.

    An id outside the vocabulary is left out, for no model writes it.

    Raises:
        ValueError: the file is no JSON object, or an id is no whole number.
    """
    path = folder / "generation_config.json"
    path = path if path.is_file() else folder / "config.json"
    fields = read_object(path)

    def ids(name: str) -> tuple[int, ...]:
        value: Any = fields.get(name)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if wrong := [token for token in listed if type(token) is not int]:
            shown = json.dumps(wrong[0])[:80]
            raise ValueError(f"{path} has {name} {shown}; accepted: a whole number, a list of these, or null")
        return tuple(token for token in dict.fromkeys(listed) if 0 <= token < vocab_size)

    return SpecialIds(next(iter(ids("bos_token_id")), None), ids("eos_token_id"))
