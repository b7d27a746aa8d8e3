"""Lossless byte-pair encoding by sentencepiece (Kudo and Richardson 2018), which is imported lazily."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.base import Tokenizer
from seqlab_data.tokenizers.pieces import recut, sized
from seqlab_data.tokenizers.words import distinct_words, joined

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

MODEL_NAME = "tokenizer.model"
SPACE = "\u2581"
"""Symbol for a space in sentencepiece's pieces. In a text it is encoded as bytes, so that it is not decoded to a
space."""
LONG = 1 << 12
"""Minimum text length, in bytes, from which each distinct word is encoded only once."""
LEARNT = 1 << 27
"""Maximum number of characters that pieces are learnt from. Each takes 10 bytes of memory."""
PART = 1 << 20
"""Number of characters in a part, the unit of subsampling; it does not depend on how the text is stored."""


class SubwordTokenizer(Tokenizer):
    """Pieces learnt from `text`, with byte fallback (256 byte tokens) for characters without a piece.

    Text is not normalised; no space is added or removed. No piece contains a newline, or a space after another
    character, so words are encoded independently, and each distinct word of a long text only once. `save` also writes
    sentencepiece's `tokenizer.model`, for its C++ library.

    Args:
        vocab_size: total number of tokens: specials, bytes and pieces.

    Raises:
        ValueError: `vocab_size` is too large for the text, or too small for its characters.
    """

    unk_id = 3

    def __init__(self, text: str, *, vocab_size: int = 2000) -> None:
        self._open(_train([text], vocab_size))

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        """Learns the pieces; a text of more than `LEARNT` characters is subsampled in evenly spaced parts."""
        tokenizer = cls.__new__(cls)
        tokenizer._open(_train(_spread(recut(sized(texts, PART), _end_of_part)), **options))
        return tokenizer

    def cut(self, text: str) -> int:
        return max(_after_separator(text), _before_spaces(text))

    def _open(self, model: bytes) -> None:
        self._model = model
        processor = self._processor
        pieces = range(processor.vocab_size())
        super().__init__(_piece_bytes(processor, piece) for piece in pieces)
        self._space = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]

    @cached_property
    def _processor(self) -> SentencePieceProcessor:
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_proto=self._model)

    def encode_array(self, text: str) -> NDArray[np.int32]:
        data = text.encode("utf-8")
        if len(data) < LONG:
            return np.array([*chain.from_iterable(self._ids(re.split(f"({SPACE})", text)))], dtype=np.int32)
        words, numbers = distinct_words(data)
        return joined(self._ids([word.decode() for word in words]), numbers)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text; `SPACE` only occurs as a separate text."""
        found = self._processor.encode(texts, out_type=int, num_threads=1)
        return [self._space if text == SPACE else ids for text, ids in zip(texts, found, strict=True)]

    def _assets(self) -> dict[str, bytes]:
        return {MODEL_NAME: self._model}

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._open(assets[MODEL_NAME])
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_processor"}


def _after_separator(text: str) -> int:
    return max(text.rfind("\n"), text.rfind(SPACE)) + 1


def _before_spaces(text: str) -> int:
    return len(text.rpartition(" ")[0].rstrip(" "))


def _end_of_part(text: str) -> int:
    """End of a part: after a line, or before a word if the whole part is a single line."""
    return _after_separator(text) or (_before_spaces(text) if len(text) == PART else 0)


def _spread(texts: Iterable[str]) -> list[str]:
    """Every text, or every second, fourth, ... text, so that they have at most `LEARNT` characters in total."""
    kept: list[str] = []
    size, step = 0, 1
    for number, text in enumerate(texts):
        if number % step == 0:
            kept.append(text)
            size += len(text)
        while size > LEARNT and len(kept) > 1:
            kept, step = kept[::2], 2 * step
            size = sum(map(len, kept))
    return kept


def _parts(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        text.encode("utf-8")
        yield from filter(None, re.split(f"[\n{SPACE}]", text))


def _train(texts: Iterable[str], vocab_size: int = 2000) -> bytes:
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_parts(texts),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            max_sentence_length=2**30,
            pad_id=Tokenizer.pad_id,
            bos_id=Tokenizer.bos_id,
            eos_id=Tokenizer.eos_id,
            unk_id=SubwordTokenizer.unk_id,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"cannot train a SubwordTokenizer: {_reason(str(error), vocab_size)}") from error
    return model.getvalue()


def _reason(message: str, vocab_size: int) -> str:
    """User-friendly form of an error message from sentencepiece."""
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return f"vocab_size {vocab_size} is too small for this text's characters, which need at least {least[1]}"
    if most := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        return f"vocab_size {vocab_size} is too large for this text, which yields at most {most[1]}"
    if "sentences_.empty()" in message:
        return "the training text is empty"
    return message


def _piece_bytes(processor: SentencePieceProcessor, piece: int) -> bytes:
    if processor.is_control(piece):
        return b""
    if processor.is_unknown(piece):
        return "\N{REPLACEMENT CHARACTER}".encode()
    name = processor.id_to_piece(piece)
    if processor.is_byte(piece):
        return bytes([int(name[1:-1], base=16)])
    return name.replace(SPACE, " ").encode()
