"""The Tokenizer interface. Every token represents fixed bytes, so decoding is a table look-up."""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers.pieces import joined

FILE_NAME = "tokenizer.json"


class Tokenizer(ABC):
    """Turns text into token ids and back.

    A subclass is constructed as `Tokenizer(text, *, options)`, where `text` is what it may learn from.
    `decode(encode(text)) == text` for every text that the tokenizer has tokens for.

    Attributes:
        pad_id, bos_id, eos_id: ids of the special tokens, identical in all tokenizers learnt here. They decode to
            the empty string. An external tokenizer may lack bos or eos (-1), or have several eos tokens.
        token_bytes: UTF-8 bytes of each id; some ids represent part of a character.
    """

    pad_id = 0
    bos_id = 1
    eos_id = 2

    def __init__(self, token_bytes: Iterable[bytes]) -> None:
        self.token_bytes = tuple(token_bytes)

    def __init_subclass__(cls, **options: Any) -> None:
        # A subclass that overrides `__init__` or `encode_array` does not inherit the matching `learn` or `cut`.
        super().__init_subclass__(**options)
        for own, inherited in (("__init__", "learn"), ("encode_array", "cut")):
            named = next(base for base in cls.__mro__ if own in vars(base) or inherited in vars(base))
            if inherited not in vars(named):
                setattr(cls, inherited, vars(Tokenizer)[inherited])

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        """Learns a tokenizer from the concatenated `texts`, with these options.

        Raises:
            ValueError: as in the constructor, or this class needs the whole text at once and the text is too long.
        """
        make: Any = cls
        learnt: Self = make(joined(texts), **options)
        return learnt

    def cut(self, text: str) -> int:
        """Last position where a text may be cut so that the ids of its parts are the ids of the whole, regardless of
        the surrounding text. 0 = no such position is known."""
        return 0

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        return (self.eos_id,)

    @property
    def vocab_size(self) -> int:
        return len(self.token_bytes)

    @abstractmethod
    def encode_array(self, text: str) -> NDArray[np.int32]:
        """The ids of a text, without special tokens, as an array (T,).

        Raises:
            ValueError: the text contains a lone surrogate, which UTF-8 cannot encode.
        """

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens. A text that Python decoded with the error handler
        "surrogateescape", such as a command-line argument, is encoded from its original bytes.

        Raises:
            ValueError: as in `encode_bytes`, or the text contains another lone surrogate.
        """
        try:
            ids: list[int] = self.encode_array(text).tolist()
        except UnicodeEncodeError:
            ids = self.encode_bytes(text.encode("utf-8", errors="surrogateescape"))
        return ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of a text in UTF-8.

        Raises:
            ValueError: `data` is not UTF-8; the message has the offset of the first invalid byte.
        """
        try:
            ids: list[int] = self.encode_array(data.decode("utf-8")).tolist()
            return ids
        except UnicodeDecodeError as error:
            raise ValueError(
                f"the text is not UTF-8 at byte {error.start}; only a byte tokenizer takes any bytes"
            ) from error

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a sequence of ids. Special tokens are dropped; invalid UTF-8 is shown as U+FFFD.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return b"".join(map(self._bytes_of, ids)).decode("utf-8", errors="replace")

    def stream_decoder(self) -> StreamDecoder:
        """Decoder for one id at a time; its concatenated output equals the output of `decode`."""
        return StreamDecoder(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to rebuild this tokenizer, as plain JSON values."""
        assets = {name: base64.b64encode(data).decode("ascii") for name, data in self._assets().items()}
        return {**self._header(), "assets": assets}

    def save(self, folder: str | Path) -> None:
        """Writes `tokenizer.json`, and next to it the asset files that it lists with their sha256."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        assets = self._assets()
        for name, data in assets.items():
            (folder / name).write_bytes(data)
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in assets.items()}
        content = {**self._header(), "assets": hashes}
        (folder / FILE_NAME).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    def _header(self) -> dict[str, Any]:
        ids = {"pad_id": self.pad_id, "bos_id": self.bos_id, "eos_id": self.eos_id}
        return {"class": type(self).__name__, "vocab_size": self.vocab_size, **ids, **self._settings()}

    def _settings(self) -> dict[str, Any]:
        """Plain values that `_restore` needs."""
        return {}

    def _assets(self) -> dict[str, bytes]:
        """Files that `_restore` needs, by name."""
        return {}

    @classmethod
    @abstractmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        """Rebuilds a tokenizer from its `_settings` and `_assets`."""

    def _bytes_of(self, token_id: int) -> bytes:
        if not 0 <= token_id < self.vocab_size:
            raise ValueError(f"token id {token_id} is outside the vocabulary, ids run from 0 to {self.vocab_size - 1}")
        return self.token_bytes[token_id]


class StreamDecoder:
    """Decodes ids incrementally, holding back the bytes of an incomplete character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes_of = tokenizer._bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this id completes; empty within a character."""
        return self._decoder.decode(self._bytes_of(token_id))

    def finish(self) -> str:
        """U+FFFD if the last character is incomplete, else the empty string."""
        return self._decoder.decode(b"", final=True)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Reads what `Tokenizer.save` wrote.

    Raises:
        OSError: a file is missing.
        ValueError: a file is damaged, or names a tokenizer class that is not imported.
    """
    folder = Path(folder)
    path = folder / FILE_NAME
    try:
        content = _read_json(path)
        hashes = content["assets"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a tokenizer file: {error!r}") from error
    if not isinstance(hashes, dict):
        raise ValueError(f"{path} is not a tokenizer file: its assets are {hashes!r}")
    assets = {name: _regular(folder / Path(name).name).read_bytes() for name in hashes}
    for name, data in assets.items():
        if hashlib.sha256(data).hexdigest() != hashes[name]:
            raise ValueError(f"{folder / name} is damaged: its sha256 is not the one in {FILE_NAME}")
    return _restore(content, assets)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(_regular(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _regular(path: Path) -> Path:
    """Rejects a pipe, on which reading would block, and a device."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file")
    return path


def tokenizer_from_dict(content: dict[str, Any]) -> Tokenizer:
    """Rebuilds what `Tokenizer.to_dict` described.

    Raises:
        ValueError: `content` is not such a description, or names a tokenizer class that is not imported.
    """
    try:
        assets = {name: base64.b64decode(data) for name, data in content["assets"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no description of a tokenizer: {error!r}") from error
    return _restore(content, assets)


class StoredTokenizer(Tokenizer):
    """Loads the tokenizer stored by a run or a bundle, regardless of the text: for data read by the same model.

    Args:
        path: `tokenizer.json` of a run's artifacts, or the folder `tokenizer` of a bundle; None = tokenizer of the run
            that the fit starts from, learns from or resumes, filled in by the command line.

    Raises:
        ValueError: the tokenizer does not exist or is damaged.
    """

    def __new__(cls, text: str, *, path: str | None = None) -> Any:
        if path is None:
            raise ValueError(
                "StoredTokenizer needs a path; give a run's tokenizer.json, or --init_from, --encoder_from or "
                "--model.teacher"
            )
        found = Path(path).expanduser()
        if found.is_dir():
            return load_tokenizer(found)
        if not found.is_file():
            raise ValueError(f"{path} is not a tokenizer; give a run's tokenizer.json, or a bundle's folder tokenizer")
        try:
            return tokenizer_from_dict(_read_json(found))
        except ValueError as error:
            hint = "; give a tokenizer.json of transformers to PretrainedTokenizer, as file"
            raise ValueError(f"{path} is not a tokenizer file of seqlab: {error}{hint}") from error

    def __init__(self, text: str, *, path: str | None = None) -> None:
        """Never called: `__new__` returns an object of another class."""

    @classmethod
    def learn(cls, texts: Iterable[str], **options: Any) -> Self:
        return cls("", **options)

    @classmethod
    def _restore(cls, settings: dict[str, Any], assets: dict[str, bytes]) -> Self:
        raise TypeError("it is stored as the tokenizer that it made")

    def encode_array(self, text: str) -> NDArray[np.int32]:
        raise AssertionError("no object is of this class")


def _restore(content: dict[str, Any], assets: dict[str, bytes]) -> Tokenizer:
    classes = {cls.__name__: cls for cls in _subclasses(Tokenizer)}
    name = content.get("class")
    if not isinstance(name, str) or name not in classes:
        raise ValueError(f"unknown tokenizer class {name!r}, known are {', '.join(sorted(classes))}")
    try:
        tokenizer = classes[name]._restore(content, assets)
    except KeyError as error:
        raise ValueError(f"the description of this {name} lacks {error}") from error
    except (AttributeError, IndexError, RuntimeError, TypeError) as error:  # sentencepiece raises RuntimeError
        raise ValueError(f"the description of this {name} is not one: {error}") from error
    if not _is_id(stated := content.get("vocab_size"), tokenizer.vocab_size):
        raise ValueError(f"this {name} has {tokenizer.vocab_size} tokens, its description says {stated}")
    for special in ("pad_id", "bos_id", "eos_id"):
        own = getattr(tokenizer, special)
        if not _is_id(stated := content.get(special, own), own):
            raise ValueError(f"the {special} of this {name} is {own}, its description says {stated}")
    return tokenizer


def _is_id(stated: object, own: int) -> bool:
    """True for equal integers; 1.0 and True equal 1 but are not ids."""
    return type(stated) is int and stated == own


def _subclasses(base: Any) -> Iterator[type[Tokenizer]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _subclasses(cls)
