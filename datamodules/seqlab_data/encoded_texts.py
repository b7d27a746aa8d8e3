"""The tokens of separate texts, made once for each content and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.cache_folder import cached_folder
from seqlab_data.token_cache import tokenizer_settings
from seqlab_data.tokenizers import Tokenizer, load_tokenizer

FORMAT = 1
"""Raise it when the tokens of the same texts and settings change, so that old caches are left behind."""


class EncodedTexts(NamedTuple):
    """A tokenizer, and of each set of texts their ids, without special tokens."""

    tokenizer: Tokenizer
    ids: dict[str, list[NDArray[np.int32]]]


def encode_texts(
    texts: Mapping[str, Sequence[str]], learn_from: Sequence[str], make_tokenizer: Callable[[str], Tokenizer]
) -> EncodedTexts:
    """The tokens of sets of texts, from a cache if they have been made before.

    Args:
        texts: sets by their names.
        learn_from: texts that the tokenizer learns from, joined by newlines.

    Raises:
        ValueError: the tokenizer cannot learn from them.
        OSError: a file of the cache cannot be read or written.
    """
    learned, settings = None, tokenizer_settings(make_tokenizer)
    if settings is None:
        learned = make_tokenizer("\n".join(learn_from))
        settings = learned.to_dict()

    def make(folder: Path) -> None:
        tokenizer = learned or make_tokenizer("\n".join(learn_from))
        tokenizer.save(folder)
        for name, some in texts.items():
            ids = [tokenizer.encode_array(text) for text in some]
            lengths = np.array([len(one) for one in ids], dtype=np.int64)
            np.savez(folder / f"{name}.npz", ids=np.concatenate([np.zeros(0, np.int32), *ids]), lengths=lengths)

    digests = {name: _digest(some) for name, some in texts.items()}
    folder = cached_folder(["texts", FORMAT, digests, _digest(learn_from), settings], make)
    return EncodedTexts(learned or load_tokenizer(folder), {name: _read(folder / f"{name}.npz") for name in texts})


def _digest(texts: Sequence[str]) -> str:
    """sha256 over that of each text."""
    digest = sha256()
    for text in texts:
        digest.update(sha256(text.encode()).digest())
    return digest.hexdigest()


def _read(path: Path) -> list[NDArray[np.int32]]:
    with np.load(path) as arrays:
        ids, ends = arrays["ids"], np.cumsum(arrays["lengths"])
    return [ids[start:end] for start, end in zip(np.append(0, ends), ends, strict=False)]
