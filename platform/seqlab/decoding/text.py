"""Texts to the ids that a model reads, and the ids that it writes to texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

Rows = list[list[int]]
"""Ids of different lengths, one list a text."""


class TextStream(Protocol):
    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


class TextTokenizer(Protocol):
    """Interface of a tokenizer; those of `seqlab_data.tokenizers` fit."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int:
        """-1 = none."""

    @property
    def eos_id(self) -> int:
        """-1 = none."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """All tokens that end a text."""

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, ids: Iterable[int], /) -> str: ...

    def stream_decoder(self) -> TextStream: ...


class WrittenIds:
    """Ids written as numbers, separated by spaces: the text of a model that has no tokenizer."""

    bos_id = eos_id = -1
    eos_ids = ()

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._begun = False

    def encode(self, text: str, /) -> list[int]:
        """Raises ValueError where there is no id, or anything but ids."""
        words = text.split()
        wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 10)]
        if wrong or not words:
            got = f'"{wrong[0][:60]}"' if wrong else "none"
            raise ValueError(f'this model has no tokenizer, and a prompt is ids, such as "5 6 7"; got {got}')
        return [int(word) for word in words]

    def decode(self, ids: Iterable[int], /) -> str:
        return " ".join(map(str, ids))

    def stream_decoder(self) -> WrittenIds:
        return WrittenIds(self.vocab_size)

    def push(self, token_id: int) -> str:
        piece = f" {token_id}" if self._begun else str(token_id)
        self._begun = True
        return piece

    def finish(self) -> str:
        return ""


def prompt_tokens(tokenizer: TextTokenizer, prompt: str) -> list[int]:
    """Tokens that the model reads of a prompt. An empty one starts a document.

    Raises:
        ValueError: it is empty, and the tokenizer has no token that starts a document.
    """
    ids = tokenizer.encode(prompt)
    if not ids and tokenizer.bos_id < 0:
        raise ValueError("the prompt is empty, and no token starts a document of this model; give a prompt")
    return ids or [tokenizer.bos_id]


def default_stop_ids(reads: str, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """The tokens that end what a model writes, where it does not say so itself: its tokenizer's eos and, for a language
    model, bos, for packed documents end where the next one begins."""
    if reads == "texts":
        return ()
    ends = (*tokenizer.eos_ids, tokenizer.bos_id) if reads == "prompts" else tokenizer.eos_ids
    return tuple(dict.fromkeys(token for token in ends if token >= 0))


class TextCodec:
    """Encoding of texts for a model, and decoding of its ids.

    Args:
        reads: "prompts", which may be empty; "sources", of another tokenizer perhaps; or "texts", to say something of.
        tokenizer: of what it writes, or reads.
        source_tokenizer: of the sources, where it is another.
        labels: the names of the classes, where it reads texts.
        stop_ids: the tokens that end what it writes; None = `default_stop_ids`.
    """

    def __init__(
        self,
        reads: Literal["prompts", "sources", "texts"],
        tokenizer: TextTokenizer,
        source_tokenizer: TextTokenizer | None = None,
        labels: Sequence[str] = (),
        stop_ids: Sequence[int] | None = None,
    ) -> None:
        self.reads = reads
        self.tokenizer = tokenizer
        self.source_tokenizer = source_tokenizer or tokenizer
        self.labels = labels
        self.stop_ids = default_stop_ids(reads, tokenizer) if stop_ids is None else tuple(stop_ids)

    def encode(self, texts: Sequence[str]) -> Rows:
        """Tokens that the model reads of each text.

        Raises:
            ValueError: one is no text, is not UTF-8, or is empty and not to be continued.
        """
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"text {number} is {text!r}, which is no text")
            if self.reads != "prompts" and not text.strip():
                raise ValueError(f"text {number} is empty")
        if self.reads == "prompts":
            return [prompt_tokens(self.tokenizer, text) for text in texts]
        end = [self.source_tokenizer.eos_id] if self.reads == "sources" else []
        return [[*self.source_tokenizer.encode(text), *end] for text in texts]

    def decode(self, rows: Rows) -> list[str]:
        """The text of each row of ids: what was written, or the names of classes, separated by a space.

        Raises:
            ValueError: there is no such token or class.
        """
        if self.reads != "texts":
            return [self.tokenizer.decode(row) for row in rows]
        return [" ".join(map(self._label, row)) for row in rows]

    def _label(self, place: int) -> str:
        if not 0 <= place < len(self.labels):
            raise ValueError(f"there is no class {place}, classes run from 0 to {len(self.labels) - 1}")
        return self.labels[place]
