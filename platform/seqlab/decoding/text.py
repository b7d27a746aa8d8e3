"""Text in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from seqlab.decoding.generate import Decoder, generate
from seqlab.decoding.repetition import FREE, Repetition
from seqlab.decoding.sampling import GREEDY, Sampling


class TextStream(Protocol):
    def push(self, token_id: int) -> str: ...

    def finish(self) -> str: ...


class TextTokenizer(Protocol):
    """What is needed of a tokenizer; those of `seqlab_data.tokenizers` fit."""

    @property
    def bos_id(self) -> int: ...

    @property
    def eos_id(self) -> int: ...

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, ids: Iterable[int], /) -> str: ...

    def stream_decoder(self) -> TextStream: ...


def prompt_tokens(tokenizer: TextTokenizer, prompt: str) -> list[int]:
    """What the model reads of a prompt. An empty one starts a document."""
    return tokenizer.encode(prompt) or [tokenizer.bos_id]


def stop_ids(tokenizer: TextTokenizer) -> tuple[int, int]:
    """The tokens that end a text. (Packed documents end where the next begins.)"""
    return tokenizer.eos_id, tokenizer.bos_id


def generate_text(
    model: Decoder,
    tokenizer: TextTokenizer,
    prompt: str,
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    repetition: Repetition = FREE,
    on_text: Callable[[str], None] | None = None,
) -> str:
    """What the model writes after `prompt`, until it ends the text.

    Args:
        on_text: called with each piece of new text as it is complete; the pieces join to what is returned.

    Raises:
        ValueError: as `generate` does.
    """
    stream = tokenizer.stream_decoder()

    def show(row: int, token: int) -> None:
        if on_text is not None and (piece := stream.push(token)):
            on_text(piece)

    [tokens] = generate(
        model,
        [prompt_tokens(tokenizer, prompt)],
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        repetition=repetition,
        stop_ids=stop_ids(tokenizer),
        on_token=show,
    )
    if on_text is not None and (rest := stream.finish()):
        on_text(rest)
    return tokenizer.decode(tokens)
