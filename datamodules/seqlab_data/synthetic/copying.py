"""Copying tasks: copy, reverse, sort, copy after a delay, and copy from among noise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from seqlab_data.generated import Draw
from seqlab_data.synthetic.base import (
    BOS,
    FIRST_SYMBOL,
    SEP,
    Example,
    SyntheticTask,
    answered,
    check_sizes,
    symbols,
)


class Rewriting(SyntheticTask):
    """Tasks whose input is `length` symbols, and whose answer is a function of them.

    Args:
        num_symbols: number of different symbols.
    """

    def __init__(self, num_symbols: int = 26) -> None:
        check_sizes(num_symbols=num_symbols)
        self.num_symbols = num_symbols
        self.vocab_size = FIRST_SYMBOL + num_symbols

    @abstractmethod
    def rewritten(self, values: Sequence[int]) -> list[int]: ...

    def example(self, draw: Draw, length: int) -> Example:
        values = draw.integers(self.num_symbols, length)
        return answered([BOS, *symbols(values), SEP], symbols(self.rewritten(values)))

    def longest(self, length: int) -> int:
        return 2 * length + 1


class Copy(Rewriting):
    """Copying of the sequence (Graves et al. 2014, "Neural Turing machines", section 4.1)."""

    def rewritten(self, values: Sequence[int]) -> list[int]:
        return list(values)


class Reverse(Rewriting):
    """The symbols in reverse order (Deletang et al. 2023, "Neural networks and the Chomsky hierarchy")."""

    def rewritten(self, values: Sequence[int]) -> list[int]:
        return list(reversed(values))


class Sort(Rewriting):
    """The symbols in ascending order (Graves et al. 2014, section 4.5; Deletang et al. 2023, "bucket sort")."""

    def rewritten(self, values: Sequence[int]) -> list[int]:
        return sorted(values)


class Delay(SyntheticTask):
    """`num_tokens` symbols, then `length` blanks; the answer is the symbols (the copying memory problem of
    Hochreiter & Schmidhuber 1997 and Arjovsky et al. 2016, "Unitary evolution RNNs", section 4.1).

    Args:
        num_symbols: number of different symbols.
        num_tokens: number of symbols to remember.
    """

    def __init__(self, num_symbols: int = 8, num_tokens: int = 10) -> None:
        check_sizes(num_symbols=num_symbols, num_tokens=num_tokens)
        self.num_symbols = num_symbols
        self.num_tokens = num_tokens
        self.nothing = FIRST_SYMBOL + num_symbols
        self.vocab_size = self.nothing + 1

    def example(self, draw: Draw, length: int) -> Example:
        values = symbols(draw.integers(self.num_symbols, self.num_tokens))
        return answered([BOS, *values, *[self.nothing] * length, SEP], values)

    def longest(self, length: int) -> int:
        return length + 2 * self.num_tokens + 1


class SelectiveCopy(SyntheticTask):
    """`num_tokens` symbols at random positions among noise, `length` in total; the answer is the symbols in order
    (Gu & Dao 2023, "Mamba", section 4.1.1). A model must select what to remember.

    Args:
        num_symbols: number of different symbols, not counting the noise symbol.
        num_tokens: number of hidden symbols.
    """

    def __init__(self, num_symbols: int = 14, num_tokens: int = 16) -> None:
        check_sizes(num_symbols=num_symbols, num_tokens=num_tokens)
        self.num_symbols = num_symbols
        self.num_tokens = num_tokens
        self.noise = FIRST_SYMBOL + num_symbols
        self.vocab_size = self.noise + 1

    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length; raises ValueError if the symbols do not fit."""
        if length < self.num_tokens:
            raise ValueError(f"SelectiveCopy hides {self.num_tokens} symbols, too many for a length of {length}")
        values = symbols(draw.integers(self.num_symbols, self.num_tokens))
        question = [self.noise] * length
        for place, value in zip(sorted(draw.sample(length, self.num_tokens)), values, strict=True):
            question[place] = value
        return answered([BOS, *question, SEP], values)

    def longest(self, length: int) -> int:
        return length + self.num_tokens + 1
