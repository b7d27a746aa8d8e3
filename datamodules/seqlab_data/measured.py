"""Digest and size of documents, computed once and reused as long as their files are unchanged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from seqlab_data.cache import cache_root, locked
from seqlab_data.progress import CharsRead
from seqlab_data.reading import Document

FORMAT = 2
"""Format version. Raise it when the text of the same file changes, so that old notes are not used."""
SETTLED = 2 * 10**9
"""Nanoseconds after which a file change is visible in its timestamps, however coarse the file system's clock is."""


class Measure(NamedTuple):
    """Digest of a sequence of documents, and their total number of characters."""

    digest: str
    num_chars: int


def measure(documents: Sequence[Document]) -> Measure:
    """Digest over the sha256 of each document in UTF-8, in order (as in `content_digest`), and total size."""
    of_all, num_chars = sha256(), 0
    with CharsRead("reading text") as bar:
        for texts in chain.from_iterable(document.documents() for document in documents):
            for text in hashed(texts, of_all):
                num_chars += len(text)
                bar.add(len(text))
    return Measure(of_all.hexdigest(), num_chars)


def hashed(texts: Iterable[str], of_all: Any) -> Iterator[str]:
    """Yields the pieces of one document, then updates `of_all` with its sha256."""
    of_one = sha256()
    for text in texts:
        of_one.update(text.encode())
        yield text
    of_all.update(of_one.digest())


def measured(documents: Sequence[Document], root: str | Path | None = None) -> Measure:
    """Measures documents as `measure` does, or returns the result cached when their files had the same sizes and
    timestamps.

    Raises:
        OSError: a file cannot be read.
    """
    before = _states(documents)
    if before is None:
        return measure(documents)
    named = [
        FORMAT,
        *([str(file.path and file.path.resolve()), type(file).__name__, file.encoding] for file in documents),
    ]
    folder = cache_root(root) / "measured"
    note = folder / f"{sha256(json.dumps(named).encode()).hexdigest()[:32]}.json"
    if found := _noted(note, before):
        return found
    with ExitStack() as lock:
        with suppress(OSError):  # the folder may belong to another user
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(locked(note.with_suffix(".lock"), "reads the text"))
        if found := _noted(note, before):
            return found
        found = measure(documents)
        newest = max(state[time_of_change] for state in before for time_of_change in (1, 2))
        if _states(documents) == before and newest < time.time_ns() - SETTLED:
            new = note.with_suffix(".new")
            with suppress(OSError):
                new.write_text(json.dumps([before, *found]))
                os.replace(new, note)
    return found


def _noted(note: Path, before: list[list[int]]) -> Measure | None:
    try:
        states, digest, num_chars = json.loads(note.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return Measure(digest, num_chars) if states == before else None


def _states(documents: Sequence[Document]) -> list[list[int]] | None:
    """Size, mtime and ctime of each file; None = not all documents are files."""
    states = []
    for document in documents:
        if document.path is None:
            return None
        found = document.path.stat()
        states.append([found.st_size, found.st_mtime_ns, found.st_ctime_ns])
    return states
