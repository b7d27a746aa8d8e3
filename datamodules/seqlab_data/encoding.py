"""Tokenization of a text in blocks, in this process or in worker processes."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab_data.tokenizers import Tokenizer

BLOCK = 1 << 20
"""Target number of characters per block, if the text can be cut there."""


class TextBlock(NamedTuple):
    """Part of the text of one split.

    Attributes:
        texts: pairs of a flag and a text; the flag is True if a document begins with that text.
    """

    split: str
    texts: list[tuple[bool, str]]

    @property
    def num_chars(self) -> int:
        return sum(len(text) for _, text in self.texts)


def encode(tokenizer: Tokenizer, block: TextBlock) -> NDArray[Any]:
    """(T,) the ids of a block, uint16 if the vocabulary fits, else uint32, with bos before each document."""
    ids = []
    for begins, text in block.texts:
        if begins:
            if tokenizer.bos_id < 0:
                raise ValueError(
                    "a document must begin with a bos token, which this tokenizer does not have; give "
                    "data.tokenizer.bos_id, such as the id of <|endoftext|>"
                )
            ids.append(np.array([tokenizer.bos_id]))
        ids.append(tokenizer.encode_array(text))
    return np.concatenate(ids).astype(dtype_of(tokenizer))


def dtype_of(tokenizer: Tokenizer) -> str:
    """NumPy dtype of an id, little-endian."""
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def encode_all(
    tokenizer: Tokenizer, blocks: Iterable[TextBlock], processes: int = 0
) -> Iterator[tuple[TextBlock, NDArray[Any]]]:
    """Each block and its ids, in order.

    Args:
        processes: number of worker processes; 0 = encode in this process. About two blocks per worker are read ahead.

    Raises:
        OSError: a worker process was killed.
    """
    if not processes:
        yield from ((block, encode(tokenizer, block)) for block in blocks)
        return
    pending: deque[tuple[TextBlock, Future[NDArray[Any]]]] = deque()
    with ProcessPoolExecutor(processes, initializer=_begin, initargs=(tokenizer,)) as pool:
        try:
            for block in blocks:
                pending.append((block, pool.submit(_encode, block)))
                if len(pending) > 2 * processes:
                    yield _first(pending)
            while pending:
                yield _first(pending)
        except BrokenProcessPool as error:
            raise OSError("a process that encoded text was killed, perhaps for lack of memory; start again") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _first(pending: deque[tuple[TextBlock, Future[NDArray[Any]]]]) -> tuple[TextBlock, NDArray[Any]]:
    block, ids = pending.popleft()
    return block, ids.result()


_tokenizer: Tokenizer
"""Tokenizer of a worker process."""


def _begin(tokenizer: Tokenizer) -> None:
    global _tokenizer
    _tokenizer = tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(block: TextBlock) -> NDArray[Any]:
    return encode(_tokenizer, block)
