"""Comparison of a bundle's tokenizers with their behaviour at export. NumPy only."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqlab.decoding.text import prompt_tokens
from seqlab_data.tokenizers import Tokenizer, load_tokenizer
from seqlab_export.runner.cases import PROOF, Arrays
from seqlab_export.runner.golden_file import array_of
from seqlab_export.runner.manifest import BundleError, Manifest
from seqlab_export.runner.report import Check


def describe(place: str, tokenizer: Tokenizer, files: Mapping[str, str]) -> dict[str, NDArray[np.generic]]:
    """Golden-file entries for a tokenizer in the folder `place`: `PLACE/class`; `PLACE/files` of `digest_of_files`;
    `PLACE/special`, the ids of pad, bos and eos; `PLACE/sha256` of `_digest`; and for each of some strings, as UTF-8,
    `PLACE/string_K`, its ids and their text.

    Args:
        files: sha256 of the bundle's files, by path.
    """
    stride = max(tokenizer.vocab_size // PROOF["most_ids"], 1)
    strings = [tokenizer.decode(range(0, tokenizer.vocab_size, stride)), *PROOF["strings"]]
    arrays: dict[str, NDArray[np.generic]] = {
        f"{place}/class": np.array(type(tokenizer).__name__),
        f"{place}/files": digest_of_files(place, files),
        f"{place}/special": np.array([tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id], dtype=np.int32),
        f"{place}/sha256": _digest(tokenizer),
    }
    for number, string in enumerate(strings):
        try:
            ids = tokenizer.encode(string)
        except ValueError:
            continue  # This tokenizer cannot encode this string.
        arrays[f"{place}/string_{number}"] = as_bytes(string)
        arrays[f"{place}/ids_{number}"] = np.array(ids, dtype=np.int32)
        arrays[f"{place}/text_{number}"] = as_bytes(tokenizer.decode(ids))
    return arrays


def digest_of_files(place: str, files: Mapping[str, str]) -> NDArray[np.uint8]:
    """The sha256 of the lines "NAME SHA256" of the files in a folder."""
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(files) if name.startswith(f"{place}/"))
    return np.frombuffer(hashlib.sha256(lines.encode()).digest(), dtype=np.uint8)


def check_texts(folder: Path, manifest: Manifest, golden: Arrays) -> Iterator[Check]:
    """One check for each tokenizer."""
    for place in filter(None, (manifest.tokenizer, manifest.source_tokenizer)):
        try:
            tokenizer = load_tokenizer(folder / place)
            note = _difference(place, tokenizer, manifest.files, golden)
            if not note and place == manifest.tokenizer and manifest.model is not None:
                note = _greedy_difference(tokenizer, golden)
        except Exception as failure:
            note = f"it cannot be loaded: {failure!r}"
        yield Check(kind="texts", subject=place, ok=not note, note=note)


def as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _difference(place: str, tokenizer: Tokenizer, files: Mapping[str, str], golden: Arrays) -> str:
    """Difference between a tokenizer and its record at export; empty = no difference."""
    stated = {name: array for name, array in golden.items() if name.startswith(f"{place}/")}
    if f"{place}/sha256" not in stated:
        raise BundleError(f"the golden file does not have {place}/sha256")
    found: Mapping[str, NDArray[np.generic]] = describe(place, tokenizer, files)
    wrong = [
        name
        for name in sorted({*stated, *found})
        if not np.array_equal(stated.get(name, np.zeros(0)), found.get(name, 0))
    ]
    return f"it gives another {wrong[0].removeprefix(place + '/')} than at export" if wrong else ""


def _greedy_difference(tokenizer: Tokenizer, golden: Arrays) -> str:
    """Difference of the greedy text from the one at export, in its first prompt or its continuation; empty = no
    difference."""
    prompt = array_of(golden, "greedy/prompt_0", None)
    ids = prompt_tokens(tokenizer, array_of(golden, "greedy/prompt_text").tobytes().decode())[: len(prompt)]
    if ids != prompt.tolist():
        return "the prompt has other ids than at export"
    text = tokenizer.decode(array_of(golden, "greedy/tokens", None, None)[0].tolist())
    return "" if text.encode() == array_of(golden, "greedy/text").tobytes() else "the greedy text is another one"


def _digest(tokenizer: Tokenizer) -> NDArray[np.uint8]:
    """The sha256 of the length, as 4 bytes, and the bytes of every token."""
    digest = hashlib.sha256()
    for token in tokenizer.token_bytes:
        digest.update(struct.pack("<I", len(token)) + token)
    return np.frombuffer(digest.digest(), dtype=np.uint8)
