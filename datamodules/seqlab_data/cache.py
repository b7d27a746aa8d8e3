"""Cache folders, written atomically once for each content and settings, and the tokens of texts in them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from seqlab_data.checked import intact, sums_of
from seqlab_data.documents import content_digest
from seqlab_data.tokenizers import (
    ByteTokenizer,
    CharTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
)
from seqlab_data.tokenizers.pieces import whole

FORMAT = 1
"""Format version. Raise it when the tokens of the same texts and settings change, so that old caches are not used."""
SUMS = "sums.json"
PATIENCE = 2.0
"""Seconds after which a process that waits for another prints a message."""
MakeTokenizer = Callable[[str], Tokenizer] | Tokenizer
LEARNED = (ByteTokenizer, CharTokenizer, SubwordTokenizer, WordTokenizer)


class EncodedTexts(NamedTuple):
    """A tokenizer, and the ids of each set of texts, without special tokens."""

    tokenizer: Tokenizer
    ids: dict[str, list[NDArray[np.int32]]]


def encode_texts(
    texts: Mapping[str, Sequence[str]], learn_from: Sequence[str], make_tokenizer: Callable[[str], Tokenizer]
) -> EncodedTexts:
    """The tokens of sets of texts, from a cache if they were encoded before.

    Args:
        texts: sets of texts by name.
        learn_from: texts that the tokenizer learns from, joined by newlines.

    Raises:
        ValueError: the tokenizer cannot learn from `learn_from`.
        OSError: a file of the cache cannot be read or written.
    """

    def make(folder: Path, tokenizer: Tokenizer) -> None:
        for name, some in texts.items():
            ids = [tokenizer.encode_array(text) for text in some]
            lengths = np.array([len(one) for one in ids], dtype=np.int64)
            # The concatenated ids of all texts, and the number of ids of each text.
            np.savez(folder / f"{name}.npz", ids=np.concatenate([np.zeros(0, np.int32), *ids]), lengths=lengths)

    digests = {name: content_digest(text.encode() for text in some) for name, some in texts.items()}
    key = ["texts", FORMAT, digests, content_digest(text.encode() for text in learn_from)]
    folder, tokenizer = cached_tokens(key, make_tokenizer, lambda: ["\n".join(learn_from)], make)
    return EncodedTexts(tokenizer, {name: _read(folder / f"{name}.npz") for name in texts})


def cached_tokens(
    key: list[Any],
    make_tokenizer: MakeTokenizer,
    learn_from: Callable[[], Iterable[str]],
    make: Callable[[Path, Tokenizer], None],
    root: str | Path | None = None,
) -> tuple[Path, Tokenizer]:
    """The cache folder for this key and the tokenizer's settings, and the tokenizer saved in it.

    Args:
        learn_from: returns the text that the tokenizer learns from, in pieces.
        make: fills an empty folder with the tokenizer's output.
        root: as in `cached_folder`.

    Raises:
        ValueError: the tokenizer cannot learn from the text.
        OSError: a file cannot be read or written.
    """
    learned, settings = None, tokenizer_settings(make_tokenizer)
    if settings is None:
        learned = learn(make_tokenizer, learn_from())
        settings = learned.to_dict()

    def fill(folder: Path) -> None:
        tokenizer = learned or learn(make_tokenizer, learn_from())
        make(folder, tokenizer)
        tokenizer.save(folder)

    folder = cached_folder([*key, settings], fill, root)
    return folder, learned or load_tokenizer(folder)


def cached_folder(key: Any, make: Callable[[Path], None], root: str | Path | None = None) -> Path:
    """The cache folder for this key. If it is missing or damaged, it is made under a temporary name and then renamed.

    Any number of processes may call this concurrently.

    Args:
        key: JSON values that determine the folder's content.
        make: fills an empty folder with files.
        root: root folder of the caches; None = `$SEQLAB_CACHE`, or `seqlab` in `$XDG_CACHE_HOME` or `~/.cache`.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the root folder cannot be created.
    """
    root = cache_root(root)
    folder = root / sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    if not _intact(folder):
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"cannot create the folder of the token caches, {root} ({error.strerror}); set SEQLAB_CACHE, "
                "XDG_CACHE_HOME or HOME, of which the first that is set determines it"
            ) from error
        with locked(root / f"{folder.name}.lock", "makes these tokens"):
            if not _intact(folder):
                _replace(folder, make)
    return folder


def _replace(folder: Path, make: Callable[[Path], None]) -> None:
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        make(temporary)
        (temporary / SUMS).write_text(json.dumps(sums_of(temporary)))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _intact(folder: Path) -> bool:
    """True if a cache exists and its files match their checksums."""
    try:
        sums = json.loads((folder / SUMS).read_text())
        return bool(sums) and intact(folder, sums)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Admits one process at a time; a process that has to wait prints what it is waiting for."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        print(f"data: waiting for another process, which {what}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cache_root(root: str | Path | None) -> Path:
    """Root folder of the caches; None = `$SEQLAB_CACHE`, or `seqlab` in `$XDG_CACHE_HOME` or `~/.cache`."""
    if root := root or os.environ.get("SEQLAB_CACHE"):
        return Path(root).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqlab"


def tokenizer_settings(make_tokenizer: MakeTokenizer) -> dict[str, Any] | None:
    """Settings that determine the tokens of this factory's tokenizer, if they are known without the text; else None.

    They can for tokenizers that learn from the text alone, as they are or in a `partial`; a file that others read, and
    other code, may change under the same name.
    """
    cls, options = _class_of(make_tokenizer)
    return {"class": cls.__name__, **options} if cls in LEARNED else None


def learn(make_tokenizer: MakeTokenizer, texts: Iterable[str]) -> Tokenizer:
    """The tokenizer that this factory learns from the concatenated `texts`; a tokenizer is returned unchanged.

    Raises:
        ValueError: it cannot learn from the text, or needs the whole text at once and the text is too long for that.
    """
    if isinstance(make_tokenizer, Tokenizer):
        return make_tokenizer
    cls, options = _class_of(make_tokenizer)
    return make_tokenizer(whole(texts)) if cls is None else cls.learn(texts, **options)


def _class_of(make_tokenizer: MakeTokenizer) -> tuple[type[Tokenizer] | None, dict[str, Any]]:
    """Class of the tokenizer that a factory makes, and its options; None = the class is unknown (custom code)."""
    made: Any = make_tokenizer
    options: dict[str, Any] = {}
    if isinstance(make_tokenizer, partial):
        made, args, options = make_tokenizer.func, make_tokenizer.args, make_tokenizer.keywords
        if args:  # jsonargparse wraps a config in its own function, whose last argument is the class
            made = args[-1] if str(getattr(made, "__module__", "")).startswith("jsonargparse.") else None
    return (made, options) if isinstance(made, type) and issubclass(made, Tokenizer) else (None, {})


def _read(path: Path) -> list[NDArray[np.int32]]:
    # The concatenated ids, (sum of T,), are split at the end of each text: (T,) each.
    with np.load(path) as arrays:
        ids, ends = arrays["ids"], np.cumsum(arrays["lengths"])
    return [ids[start:end] for start, end in zip(np.append(0, ends), ends, strict=False)]
