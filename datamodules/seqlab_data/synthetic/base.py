"""Base of the synthetic tasks: sequences to continue, of which only the answers count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from seqlab.batch import IGNORE
from seqlab_data.generated import Draw

PAD, BOS, SEP = 0, 1, 2
FIRST_SYMBOL = 3


class Example(NamedTuple):
    """A sequence to read from left to right.

    Attributes:
        tokens: the tokens that are read.
        targets: what must be predicted after each of them, `IGNORE` where nothing counts.
    """

    tokens: list[int]
    targets: list[int]


class SyntheticTask(ABC):
    """Makes examples of any length.

    Attributes:
        vocab_size: tokens, of which 0 pads, 1 begins and 2 separates the question from the answer.
    """

    vocab_size: int

    @abstractmethod
    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length, in the task's own measure."""

    @abstractmethod
    def longest(self, length: int) -> int:
        """The most tokens that are read at this length."""


def answered(question: Sequence[int], answer: Sequence[int]) -> Example:
    """A question and its answer, each symbol of which is read when the next is predicted."""
    return Example([*question, *answer[:-1]], [IGNORE] * (len(question) - 1) + list(answer))


def symbols(values: Sequence[int]) -> list[int]:
    """Values from 0 on as tokens."""
    return [FIRST_SYMBOL + value for value in values]


def check_sizes(**sizes: int) -> None:
    """Raises ValueError where a size is under 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
