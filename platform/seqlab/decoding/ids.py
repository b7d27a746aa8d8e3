"""Ids written as numbers: the text of a model that has no tokenizer."""

from __future__ import annotations

from collections.abc import Iterable


class WrittenIds:
    """Reads and writes ids separated by spaces; none of them ends a text."""

    bos_id = eos_id = -1

    def __init__(self) -> None:
        self._begun = False

    def encode(self, text: str, /) -> list[int]:
        """Raises ValueError where there is no id, or something else."""
        words = text.split()
        wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 10)]
        if wrong or not words:
            got = f'"{wrong[0][:60]}"' if wrong else "none"
            raise ValueError(f'this model has no tokenizer, and a prompt is ids, such as "5 6 7"; got {got}')
        return [int(word) for word in words]

    def decode(self, ids: Iterable[int], /) -> str:
        return " ".join(map(str, ids))

    def stream_decoder(self) -> WrittenIds:
        return WrittenIds()

    def push(self, token_id: int) -> str:
        piece = f" {token_id}" if self._begun else str(token_id)
        self._begun = True
        return piece

    def finish(self) -> str:
        return ""
