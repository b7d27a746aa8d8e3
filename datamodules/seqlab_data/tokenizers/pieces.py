"""Streaming of a long text in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

LONGEST = 1 << 28
"""Maximum number of characters held in memory where a text cannot be cut."""


def recut(texts: Iterable[str], cut: Callable[[str], int]) -> Iterator[str]:
    """The concatenated text in new pieces: each piece but the last ends at a position chosen by `cut`.

    Args:
        cut: returns the last position where a text may be cut, regardless of the surrounding text; 0 = nowhere.

    Raises:
        ValueError: there is no such position within `LONGEST` characters.
    """
    held: list[str] = []
    size = 0
    for text in texts:
        place = cut(text)
        if place:
            yield "".join((*held, text[:place]))
            held, size = [], 0
        if place < len(text):
            held.append(text[place:])
            size += len(text) - place
        if size > LONGEST:
            raise ValueError(f"{LONGEST} characters after {held[0][:20]!r} have no place where they can be cut")
    if held:
        yield "".join(held)


def sized(texts: Iterable[str], size: int) -> Iterator[str]:
    """The concatenated text in pieces of `size` characters; the last piece may be shorter."""
    held: list[str] = []
    left = size
    for text in texts:
        while len(text) >= left:
            yield "".join((*held, text[:left]))
            held, text, left = [], text[left:], size
        held.append(text)
        left -= len(text)
    if left < size:
        yield "".join(held)


def whole(texts: Iterable[str]) -> str:
    """The concatenated text.

    Raises:
        ValueError: the text has more than `LONGEST` characters.
    """
    return "".join(recut(texts, lambda text: 0))


def after_space(text: str) -> int:
    """Position after the last whitespace of a text; 0 = no whitespace."""
    last = text.rsplit(maxsplit=1)[-1:]
    return len(text) - (len(last[0]) if last and text.endswith(last[0]) else 0)
