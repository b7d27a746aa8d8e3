"""Shuffling of the words of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal

from seqlab_data.generated import Draw
from seqlab_data.splits import SPLITS
from seqlab_data.tokenizers.pieces import recut

WordOrder = Literal["natural", "shuffled"]
WORD = re.compile(r"\S+")


def check_word_order(order: WordOrder) -> WordOrder:
    """Returns a word order unchanged.

    Raises:
        ValueError: the word order is unknown.
    """
    if order not in ("natural", "shuffled"):
        raise ValueError(f"data.word_order must be natural or shuffled, got {order}")
    return order


def shuffled_words(text: str, *key: int) -> str:
    """A text with its words shuffled; the whitespace between them is kept.

    Args:
        key: integers that determine the order, on every machine.
    """
    words = WORD.findall(text)
    order = iter(Draw(*key).sample(len(words), len(words)))
    return WORD.sub(lambda _: words[next(order)], text)


def shuffled_lines(texts: Iterable[str], *key: int) -> Iterator[str]:
    """The concatenated text with the words of each line shuffled, in pieces that may be cut differently.

    Args:
        key: integers that determine the order, together with the line number.
    """
    number = 0
    for text in recut(texts, lambda text: text.rfind("\n") + 1):
        lines = text.split("\n")
        yield "\n".join(shuffled_words(line, *key, number + k) for k, line in enumerate(lines))
        number += len(lines) - 1


def in_order(splits: Mapping[str, Sequence[str]], order: WordOrder, seed: int) -> Mapping[str, Sequence[str]]:
    """The texts of each split, with their words in the given order."""
    if order == "natural":
        return splits
    return {
        split: [shuffled_words(text, seed, SPLITS.index(split), row) for row, text in enumerate(texts)]
        for split, texts in splits.items()
    }


def digest_in_order(digest: str, order: WordOrder) -> str:
    """Digest of a text with its words in this order, from the digest of the text as read; shuffling changes it."""
    return digest if order == "natural" else sha256(f"{digest}, words shuffled".encode()).hexdigest()
