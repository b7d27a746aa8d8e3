"""Train, val and test: their shares, and one set of examples divided into them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from hashlib import sha256
from typing import Protocol, TypeVar

SPLITS = ("train", "val", "test")
NUMERALS = {2: "two", 3: "three"}


def check_split(split: Sequence[float]) -> None:
    """Rejects values that are not valid fractions of train, val and test.

    Raises:
        ValueError: the values are not three, not positive, or do not sum to 1.
    """
    if len(split) != 3 or min(split) <= 0 or abs(sum(split) - 1) > 1e-9:
        raise ValueError(f"data.split must be three positive shares that sum to 1, got {tuple(split)}")


class HasContent(Protocol):
    """An example that is assigned to a split by its content, which excludes its labels."""

    @property
    def content(self) -> bytes: ...


HasContentT = TypeVar("HasContentT", bound=HasContent)
PathT = TypeVar("PathT")


def given_splits(**paths: PathT | None) -> dict[str, PathT]:
    """The paths of the splits that have one."""
    return {name: path for name, path in paths.items() if path is not None}


def complete_splits(read: Mapping[str, list[HasContentT]], split: Sequence[float]) -> dict[str, list[HasContentT]]:
    """Train, val and test; a split that was not read is split off train.

    Args:
        read: examples of "train" and of each split that has its own path; such a split takes no example of train.
        split: fractions of train, val and test.
    """
    shares = dict(zip(SPLITS, split, strict=True))
    divided = {name: share for name, share in shares.items() if name == "train" or name not in read}
    return {**read, **split_examples(read["train"], divided)}


def check_filled(splits: Mapping[str, Sequence[HasContent]], name: str, one: str, paths: Container[str]) -> None:
    """Rejects a split that is empty after a file was divided.

    Args:
        name: name of the file.
        one: singular noun for an example of the file.
        paths: splits that have their own path.

    Raises:
        ValueError: a split is empty; the message has the number of examples and advice.
    """
    divided = [split for split in splits if split == "train" or split not in paths]
    if all(len(splits[split]) for split in divided):
        return
    contents = [example.content for split in divided for example in splits[split]]
    few, different = f"{len(contents)} {one}s", len(set(contents))
    if len(contents) == 1:
        few = f"1 {one} is"
    elif different < len(contents):
        few = f"{few}, {different} without duplicates, are"
    else:
        few = f"{few} are"
    apart = " and ".join(f"data.{split}" for split in divided if split != "train")
    raise ValueError(f"{name}: {few} too few for {NUMERALS[len(divided)]} splits by content; give {apart}")


def split_examples(examples: Sequence[HasContentT], shares: Mapping[str, float]) -> dict[str, list[HasContentT]]:
    """Divides examples by a hash of their content: equal examples share a split, whatever their order or labels.

    Args:
        shares: expected fraction of each split, relative to the sum.
    """
    splits: dict[str, list[HasContentT]] = {name: [] for name in shares}
    for example in examples:
        splits[split_of(example.content, shares)].append(example)
    return splits


def split_of(content: bytes, shares: Mapping[str, float]) -> str:
    """The split selected by a hash of the content; equal contents share a split.

    Args:
        shares: expected fraction of each split, relative to the sum.
    """
    place = int.from_bytes(sha256(content).digest()[:8]) / 2**64 * sum(shares.values())
    for name, share in shares.items():
        place -= share
        if place < 0:
            return name
    return [*shares][-1]
