"""Recall tasks: associative recall, induction heads, a needle in a haystack."""

from __future__ import annotations

from seqlab.batch import IGNORE
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


class AssociativeRecall(SyntheticTask):
    """Multi-query associative recall (Arora et al. 2023, "Zoology", section 3): `length` key-value pairs, then each key
    again in random order, after which its value must be predicted. The value read after a queried key is random: with
    the correct values as inputs, a model could infer the last answers by elimination and get stuck there.

    Args:
        num_keys, num_values: number of different keys and values. Keys do not repeat.
    """

    def __init__(self, num_keys: int = 64, num_values: int = 64) -> None:
        check_sizes(num_keys=num_keys, num_values=num_values)
        self.num_keys, self.num_values = num_keys, num_values
        self.vocab_size = FIRST_SYMBOL + num_keys + num_values

    def example(self, draw: Draw, length: int) -> Example:
        """An example with `length` pairs; raises ValueError if there are fewer keys than pairs."""
        if length > self.num_keys:
            raise ValueError(f"AssociativeRecall has {self.num_keys} keys, too few for {length} pairs")
        keys = symbols(draw.sample(self.num_keys, length))
        values = [self.num_keys + value for value in symbols(draw.integers(self.num_values, length))]
        pairs = [token for pair in zip(keys, values, strict=True) for token in pair]
        order = draw.sample(length, length)
        noise = [self.num_keys + value for value in symbols(draw.integers(self.num_values, length))]
        given = [BOS, *pairs, SEP]
        asked = [token for place, other in zip(order, noise, strict=True) for token in (keys[place], other)]
        answers = [token for place in order for token in (values[place], IGNORE)]
        return Example([*given, *asked[:-1]], [IGNORE] * len(given) + answers[:-1])

    def longest(self, length: int) -> int:
        return 4 * length + 1


class InductionHeads(SyntheticTask):
    """`length` symbols, one of them the separator, which is repeated at the end; the answer is the symbol that followed
    it (Olsson et al. 2022, "In-context learning and induction heads"; Fu et al. 2023, "H3", table 1).

    Args:
        num_symbols: number of different symbols, not counting the separator.
    """

    def __init__(self, num_symbols: int = 16) -> None:
        check_sizes(num_symbols=num_symbols)
        self.num_symbols = num_symbols
        self.vocab_size = FIRST_SYMBOL + num_symbols

    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length; raises ValueError if no symbol can follow the separator."""
        if length < 2:
            raise ValueError(f"InductionHeads needs a length of at least 2, got {length}")
        question = symbols(draw.integers(self.num_symbols, length))
        place = draw.integer(length - 1)
        question[place] = SEP
        return answered([BOS, *question, SEP], [question[place + 1]])

    def longest(self, length: int) -> int:
        return length + 2


class NeedleInHaystack(SyntheticTask):
    """`length` filler symbols with one marker and value inserted; the answer is the value (Kamradt 2023,
    "Needle in a haystack"; "passkey retrieval" of Mohtashami & Jaggi 2023, "Landmark attention").

    Args:
        num_symbols: number of different symbols. Any of them may be the value.
    """

    def __init__(self, num_symbols: int = 32) -> None:
        check_sizes(num_symbols=num_symbols)
        self.num_symbols = num_symbols
        self.marker = FIRST_SYMBOL + num_symbols
        self.vocab_size = self.marker + 1

    def example(self, draw: Draw, length: int) -> Example:
        question = symbols(draw.integers(self.num_symbols, length))
        (value,) = symbols([draw.integer(self.num_symbols)])
        place = draw.integer(length + 1)
        return answered([BOS, *question[:place], self.marker, value, *question[place:], SEP], [value])

    def longest(self, length: int) -> int:
        return length + 4
