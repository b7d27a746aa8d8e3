"""Phases of long work, reported to whoever shows its progress. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Listener = Callable[[str, int, int], None]
"""Called with the name of a phase, the number of its finished parts, and the number of all."""

T = TypeVar("T")

_LISTENER: ContextVar[Listener | None] = ContextVar("_LISTENER", default=None)


def report(phase: str, done: int, total: int) -> None:
    """Reports that `done` of the `total` parts of a phase are finished."""
    if (listener := _LISTENER.get()) is not None:
        listener(phase, done, total)


def counted(phase: str, parts: Iterable[T]) -> Iterator[T]:
    """The parts of a phase, which is reported before each of them and at the end."""
    known: Any = parts if isinstance(parts, Sized) else [*parts]
    for done, part in enumerate(known):
        report(phase, done, len(known))
        yield part
    report(phase, len(known), len(known))


@contextmanager
def listened(listener: Listener) -> Iterator[None]:
    """While entered, phases in this context are reported to `listener`."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
