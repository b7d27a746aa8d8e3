"""One set of examples, divided into train, val and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Protocol, TypeVar


class HasContent(Protocol):
    """What is divided by its content: of an example all but its labels."""

    @property
    def content(self) -> bytes: ...


HasContentT = TypeVar("HasContentT", bound=HasContent)


def complete_splits(read: Mapping[str, list[HasContentT]], split: Sequence[float]) -> dict[str, list[HasContentT]]:
    """Train, val and test, of which those that were not read are divided off train.

    Args:
        read: the examples of "train" and of each split that has a path of its own; it takes nothing of train.
        split: shares of the three.
    """
    shares = dict(zip(("train", "val", "test"), split, strict=True))
    divided = {name: share for name, share in shares.items() if name == "train" or name not in read}
    return {**read, **split_examples(read["train"], divided)}


def split_examples(examples: Sequence[HasContentT], shares: Mapping[str, float]) -> dict[str, list[HasContentT]]:
    """Divides examples by a hash of their content, so that equal ones are in one split, whatever the order or labels.

    Args:
        shares: of each split, expected; in proportion to their sum.
    """
    splits: dict[str, list[HasContentT]] = {name: [] for name in shares}
    for example in examples:
        splits[split_of(example.content, shares)].append(example)
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
