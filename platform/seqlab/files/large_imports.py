"""Imports of large libraries, and the end of a process that has imported them, without futile garbage collection."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process


@contextmanager
def uncollected(*, first: bool = False) -> Iterator[None]:
    """Disables garbage collection during imports. No imported object is garbage, and scanning them takes half a second.

    Args:
        first: nothing but libraries has been loaded so far: what is imported is never scanned again, and the process
            leaves its memory to the system when it ends.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if first:
            gc.freeze()
            atexit.register(_leave)
        gc.enable()


def _leave() -> None:
    """Collects garbage for the last time, which calls its finalisers; Python would scan every module twice more."""
    if parent_process() is None:  # multiprocessing ends its processes without a collection
        gc.collect()
        gc.freeze()
