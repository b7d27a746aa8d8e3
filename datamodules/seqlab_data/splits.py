"""One set of examples, divided into train, val and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Protocol, TypeVar


class HasText(Protocol):
    """What is divided by its text."""

    @property
    def text(self) -> str: ...


HasTextT = TypeVar("HasTextT", bound=HasText)


def split_examples(examples: Sequence[HasTextT], shares: Mapping[str, float]) -> dict[str, list[HasTextT]]:
    """Divides examples by a hash of their text, so that equal texts are in one split, whatever the order or labels.

    Args:
        shares: of each split, expected; in proportion to their sum.
    """
    splits: dict[str, list[HasTextT]] = {name: [] for name in shares}
    for example in examples:
        splits[split_of(example.text.encode(), shares)].append(example)
    return splits


def split_of(content: bytes, shares: Mapping[str, float]) -> str:
    """The split that a hash of the content puts it in; equal contents are in one.

    Args:
        shares: of each split, expected; in proportion to their sum.
    """
    place = int.from_bytes(sha256(content).digest()[:8]) / 2**64 * sum(shares.values())
    for name, share in shares.items():
        place -= share
        if place < 0:
            return name
    return [*shares][-1]
