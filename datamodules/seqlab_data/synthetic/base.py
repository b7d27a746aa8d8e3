"""Base class of the synthetic tasks: sequences to continue, with a loss on the answers only."""

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
        tokens: input tokens.
        targets: token to predict after each input token; `IGNORE` = excluded from the loss.
    """

    tokens: list[int]
    targets: list[int]


class SyntheticTask(ABC):
    """Generator of examples of any length.

    Attributes:
        vocab_size: number of tokens; 0 = padding, 1 = bos, 2 = separator between question and answer.
    """

    vocab_size: int

    @abstractmethod
    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length, in the task's own unit."""

    @abstractmethod
    def longest(self, length: int) -> int:
        """Maximum number of input tokens at this length."""

    def varied(self) -> dict[str, str]:
        """Attributes that an evaluation may change, by name."""
        return {}


def answered(question: Sequence[int], answer: Sequence[int]) -> Example:
    """A question and its answer; each answer symbol is an input for predicting the next."""
    return Example([*question, *answer[:-1]], [IGNORE] * (len(question) - 1) + list(answer))


def symbols(values: Sequence[int]) -> list[int]:
    """Tokens of values 0, 1, ..."""
    return [FIRST_SYMBOL + value for value in values]


def check_sizes(**sizes: int) -> None:
    """Raises ValueError if a size is less than 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
