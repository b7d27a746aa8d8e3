"""An external byte-level BPE tokenizer, run by the `tokenizers` library, which is imported lazily."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.base import Tokenizer
from seqlab_data.tokenizers.chat import ChatFormat

if TYPE_CHECKING:
    import tokenizers

FILE_NAME = "pretrained.json"
LARGEST = 1 << 24
"""Maximum number of ids, so that a number in a file cannot allocate arbitrary memory."""


class PretrainedTokenizer(Tokenizer):
    """The byte-level BPE of a `tokenizer.json` (GPT-2, Llama 3; Radford et al. 2019, section 2.2).

    Ids are taken from the file. No special token is added, and special tokens in a text are encoded as plain text. The
    bos and eos tokens are not in this file, but in the model's `generation_config.json` or `config.json`.

    Args:
        text: ignored; nothing is learnt from it.
        file: path of a `tokenizer.json`.
        vocab_size: vocabulary size of the model, which may exceed the file's; None = the file's.
        bos_id: id of the token that begins a document; None = the first of `eos_id`.
        eos_id: id or ids of the tokens that end a text; None = no such token.

    Attributes:
        chat: what the model expects between the messages of a chat; None = it is for no chats.
        special_tokens: ids of the special tokens, by their text.

    Raises:
        ValueError: the file does not exist, is not a byte-level BPE, or lacks one of the ids.
    """

    chat: ChatFormat | None = None

    def __init__(
        self,
        text: str = "",
        *,
        file: str,
        vocab_size: int | None = None,
        bos_id: int | None = None,
        eos_id: int | list[int] | None = None,
    ) -> None:
        path = Path(file)
        if not path.is_file():
            raise ValueError(f"{path} does not exist; a PretrainedTokenizer needs a tokenizer.json")
        ends = [] if eos_id is None else [eos_id] if isinstance(eos_id, int) else eos_id
        self._open(path.read_bytes(), vocab_size, bos_id if bos_id is not None else (ends or [-1])[0], ends)

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        return cls(**options)

    def _open(self, content: bytes, vocab_size: int | None, bos_id: int, eos_ids: list[int]) -> None:
        try:
            described = json.loads(content)
            kind = described.get("model", {}).get("type")
        except (ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"this tokenizer.json is no JSON of a tokenizer: {error}") from error
        if kind != "BPE" or not _is_byte_level(described.get("pre_tokenizer") or {}):
            raise ValueError(f"this tokenizer.json is a {kind} model that is not byte-level; accepted: byte-level BPE")
        self._content = content
        special = {token["id"]: token["content"] for token in described["added_tokens"] if token["special"]}
        self.special_tokens: dict[str, int] = {text: token_id for token_id, text in special.items()}
        vocab: dict[str, int] = described["model"]["vocab"]
        plain = {token["id"]: token["content"] for token in described["added_tokens"] if not token["special"]}
        ids = [*vocab.values(), *special, *plain]
        size = max([vocab_size or 0, *(token_id + 1 for token_id in ids)])
        if size > LARGEST or min(ids, default=0) < 0:
            raise ValueError(f"a token of this tokenizer.json is not from 0 to {LARGEST - 1}")
        byte_of = {letter: byte for byte, letter in enumerate(_letters())}
        token_bytes = [b""] * size
        for piece, token_id in vocab.items():
            if token_id not in special:
                token_bytes[token_id] = bytes(byte_of[letter] for letter in piece)
        for token_id, text in plain.items():
            token_bytes[token_id] = text.encode()
        super().__init__(token_bytes)
        for name, token_id, least in (*(("eos_id", token_id, 0) for token_id in eos_ids), ("bos_id", bos_id, -1)):
            if type(token_id) is not int or not least <= token_id < size:
                raise ValueError(f"{name} is {token_id!r}; accepted: the ids of this tokenizer, 0 to {size - 1}")
        self.bos_id, self._eos_ids = bos_id, tuple(eos_ids)
        self.eos_id, self.pad_id = (*eos_ids, -1)[0], (*eos_ids, 0)[0]

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self._eos_ids

    @cached_property
    def _library(self) -> tokenizers.Tokenizer:
        import tokenizers

        loaded = tokenizers.Tokenizer.from_buffer(self._content)
        loaded.encode_special_tokens = True
        return loaded

    def encode_array(self, text: str) -> NDArray[np.int32]:
        text.encode("utf-8")
        return np.array(self._library.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def encode_with_special(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are not plain text."""
        self._library.encode_special_tokens = False
        try:
            return list(self._library.encode(text, add_special_tokens=False).ids)
        finally:
            self._library.encode_special_tokens = True

    def _settings(self) -> dict[str, Any]:
        chat = {} if self.chat is None else {"chat": self.chat.to_dict()}
        return {"eos_ids": list(self.eos_ids), **chat}

    def _assets(self) -> dict[str, bytes]:
        return {FILE_NAME: self._content}

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        tokenizer = cls.__new__(cls)
        eos_ids = settings.get("eos_ids", [settings["eos_id"]])
        tokenizer._open(assets[FILE_NAME], settings["vocab_size"], settings["bos_id"], eos_ids)
        if "chat" in settings:
            tokenizer.chat = ChatFormat.from_dict(settings["chat"], tokenizer.vocab_size)
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_library"}


def _is_byte_level(pre_tokenizer: dict[str, Any]) -> bool:
    parts = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return any(part.get("type") == "ByteLevel" for part in parts)


def _letters() -> list[str]:
    """Letter that represents each byte: the byte's own character if printable, else one from U+0100 on (GPT-2)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
