"""A long text in pieces, none of which is held longer than it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

LONGEST = 1 << 28
"""Characters that are held at once, where a text cannot be cut."""


def recut(texts: Iterable[str], cut: Callable[[str], int]) -> Iterator[str]:
    """The text that these give end to end, in other pieces: each but the last ends where `cut` says.

    Args:
        cut: the last place in a text where it may be cut, whatever stands before and after it; 0 = nowhere.

    Raises:
        ValueError: there is no such place in `LONGEST` characters.
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
            raise ValueError(f"{LONGEST} characters in a row have no place to cut them, after {held[0][:20]!r}")
    if held:
        yield "".join(held)


def sized(texts: Iterable[str], size: int) -> Iterator[str]:
    """The text that these give end to end, in pieces of so many characters, the last of what is left."""
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
    """The text that these give end to end.

    Raises:
        ValueError: it is longer than `LONGEST`.
    """
    return "".join(recut(texts, lambda text: 0))


def after_space(text: str) -> int:
    """The place after the last whitespace of a text; 0 = it has none."""
    last = text.rsplit(maxsplit=1)[-1:]
    return len(text) - (len(last[0]) if last and text.endswith(last[0]) else 0)
