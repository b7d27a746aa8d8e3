"""Conversion between texts and the token ids that a model reads and generates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

Rows = list[list[int]]
"""Token ids, one list per text; lengths may differ."""


class TextStream(Protocol):
    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


class TextTokenizer(Protocol):
    """Tokenizer interface; the tokenizers of `seqlab_data.tokenizers` implement it."""

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
        """Ids of all tokens that end a text."""

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, ids: Iterable[int], /) -> str: ...

    def stream_decoder(self) -> TextStream: ...


class WrittenIds:
    """Tokenizer for a model that has none: a text is token ids separated by spaces."""

    bos_id = eos_id = -1
    eos_ids = ()

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._begun = False

    def encode(self, text: str, /) -> list[int]:
        """Raises ValueError if the text is empty or contains anything but ids."""
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
    """Token ids of a prompt. An empty prompt starts a document, with bos.

    Raises:
        ValueError: the prompt is empty and the tokenizer has no bos.
    """
    ids = tokenizer.encode(prompt)
    if not ids and tokenizer.bos_id < 0:
        raise ValueError("the prompt is empty, and no token starts a document of this model; give a prompt")
    return ids or [tokenizer.bos_id]


def default_stop_ids(reads: str, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """Default stop tokens: the tokenizer's eos ids and, for a language model, bos, because a packed document ends where
    the next one begins."""
    if reads == "texts":
        return ()
    ends = (*tokenizer.eos_ids, tokenizer.bos_id) if reads == "prompts" else tokenizer.eos_ids
    return tuple(dict.fromkeys(token for token in ends if token >= 0))


class TextCodec:
    """Encodes texts for a model and decodes its output ids.

    Args:
        reads: "prompts" to continue, which may be empty; "sources" to translate; or "texts" to classify.
        tokenizer: tokenizer of the generated texts, and of the inputs unless source_tokenizer is given.
        source_tokenizer: tokenizer of the sources; None = `tokenizer`.
        labels: class names, where the model classifies texts.
        stop_ids: stop tokens; None = `default_stop_ids`.
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
        """Token ids of each text.

        Raises:
            ValueError: a text is not a string, is not valid UTF-8, or is empty where the model does not read prompts.
        """
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"text {number} must be a string, got {text!r}")
            if self.reads != "prompts" and not text.strip():
                raise ValueError(f"text {number} is empty")
        if self.reads == "prompts":
            return [prompt_tokens(self.tokenizer, text) for text in texts]
        end = [self.source_tokenizer.eos_id] if self.reads == "sources" else []
        return [[*self.source_tokenizer.encode(text), *end] for text in texts]

    def decode(self, rows: Rows) -> list[str]:
        """Text of each row of ids: the generated text, or class names separated by spaces.

        Raises:
            ValueError: a token or class does not exist.
        """
        if self.reads != "texts":
            return [self.tokenizer.decode(row) for row in rows]
        return [" ".join(map(self._label, row)) for row in rows]

    def _label(self, place: int) -> str:
        if not 0 <= place < len(self.labels):
            raise ValueError(f"class {place} does not exist; classes run from 0 to {len(self.labels) - 1}")
        return self.labels[place]
