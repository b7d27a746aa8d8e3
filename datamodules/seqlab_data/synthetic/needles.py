"""Retrieval from long inputs: the needle and variable-tracking tasks of RULER (Hsieh et al. 2024, "RULER: What's the
real context size of your long-context language models?"), on symbols."""

from __future__ import annotations

from collections.abc import Sequence

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


class NeedleRetrieval(SyntheticTask):
    """Needles, each a key and its value, at random places among `length` filler symbols; then some of the keys, after
    each of which its values must be predicted, in the order of the input (RULER, section 3: single, multi-key,
    multi-value and multi-query). Keys that are not asked are distractors. The last value of a key is random where it is
    read, as in `AssociativeRecall`.

    Args:
        num_keys: least and greatest number of keys in the input; all numbers are equally likely. A test may change it.
        num_values: number of needles of each key, with different values.
        num_queries: number of keys that are asked; all, if there are fewer.
        num_symbols: number of different filler symbols, of different keys and of different values.
        depth: least and greatest depth of the needles that are asked for, from 0, the beginning of the input, to 1, its
            end. A test may change it.

    Raises:
        ValueError: a number is below 1, the least of a range is above the greatest, `depth` is not within 0 and 1, or
            there are fewer symbols than keys, or than values of a key.
    """

    def __init__(
        self,
        num_keys: tuple[int, int] = (4, 4),
        num_values: int = 1,
        num_queries: int = 1,
        num_symbols: int = 32,
        depth: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        check_sizes(num_values=num_values, num_queries=num_queries)
        if not 1 <= num_keys[0] <= num_keys[1]:
            raise ValueError(f"num_keys must be a least and a greatest number of at least 1, got {tuple(num_keys)}")
        if num_symbols < (needed := max(num_keys[1], num_values)):
            raise ValueError(
                f"num_symbols must be at least the number of keys and of values of a key, {needed}; got {num_symbols}"
            )
        if not 0 <= depth[0] <= depth[1] <= 1:
            raise ValueError(f"depth must be a least and a greatest depth from 0 to 1, got {tuple(depth)}")
        self.num_values, self.num_queries, self.num_symbols = num_values, num_queries, num_symbols
        self.num_keys, self.depth = (num_keys[0], num_keys[1]), (depth[0], depth[1])
        self.vocab_size = FIRST_SYMBOL + 3 * num_symbols

    def varied(self) -> dict[str, str]:
        return {"num_keys": str(self.num_keys), "depth": str(self.depth)}

    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length. Symbol s < n is filler; n + s is a key, 2 n + s a value."""
        filler = draw.integers(self.num_symbols, length)
        least, most = self.num_keys
        keys = draw.sample(self.num_symbols, least + draw.integer(most - least + 1))
        first, last = (round(depth * length) for depth in self.depth)
        needles, read, targets = [], list[int](), list[int]()
        for number, key in enumerate(keys):
            values = [2 * self.num_symbols + value for value in draw.sample(self.num_symbols, self.num_values)]
            is_asked = number < self.num_queries
            begin, end = (first, last) if is_asked else (0, length)
            places = sorted(begin + draw.integer(end - begin + 1) for _ in values)
            needles += [(place, [self.num_symbols + key, value]) for place, value in zip(places, values, strict=True)]
            if is_asked:
                noise = 2 * self.num_symbols + draw.integer(self.num_symbols)
                read += symbols([self.num_symbols + key, *values[:-1], noise])
                targets += [*symbols(values), IGNORE]
        given = [BOS, *symbols(hidden(filler, needles)), SEP]
        return Example([*given, *read[:-1]], [*[IGNORE] * len(given), *targets[:-1]])

    def longest(self, length: int) -> int:
        most = self.num_keys[1]
        return length + 2 * most * self.num_values + min(self.num_queries, most) * (1 + self.num_values) + 1


class VariableTracking(SyntheticTask):
    """Chains of assignments at random places among `length` filler symbols: the first gives a value to a variable, each
    further one gives a variable's value to another. The question is a value; the answer is all variables that have it,
    in the order of their assignments (RULER, section 3: variable tracking).

    Args:
        num_chains: number of chains.
        num_hops: number of assignments of each chain.
        num_symbols: number of different filler symbols, and of different values and variables together.

    Raises:
        ValueError: a number is below 1, or the chains need more than `num_symbols` values and variables.
    """

    def __init__(self, num_chains: int = 2, num_hops: int = 4, num_symbols: int = 32) -> None:
        check_sizes(num_chains=num_chains, num_hops=num_hops)
        if num_symbols < (needed := num_chains * (num_hops + 1)):
            raise ValueError(
                f"num_symbols must be at least the number of values and variables, {needed}; got {num_symbols}"
            )
        self.num_chains, self.num_hops, self.num_symbols = num_chains, num_hops, num_symbols
        self.assign = FIRST_SYMBOL + 2 * num_symbols
        self.vocab_size = self.assign + 1

    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length. Symbol s < n is filler, n + s a value or a variable; 2 n begins an assignment,
        followed by what is assigned and the variable."""
        filler, every = draw.integers(self.num_symbols, length), self.num_hops + 1
        names = [self.num_symbols + name for name in draw.sample(self.num_symbols, self.num_chains * every)]
        chains = [names[start : start + every] for start in range(0, len(names), every)]
        needles = [
            (place, [2 * self.num_symbols, *chain[hop : hop + 2]])
            for chain in chains
            for hop, place in enumerate(sorted(draw.integers(length + 1, self.num_hops)))
        ]
        value, *variables = symbols(chains[0])
        return answered([BOS, *symbols(hidden(filler, needles)), SEP, value], variables)

    def longest(self, length: int) -> int:
        return length + 3 * self.num_chains * self.num_hops + self.num_hops + 2


def hidden(filler: Sequence[int], needles: Sequence[tuple[int, list[int]]]) -> list[int]:
    """The filler with each needle inserted before the symbol at its place; needles of one place keep their order."""
    found, start = list[int](), 0
    for place, needle in sorted(needles, key=lambda needle: needle[0]):
        found += [*filler[start:place], *needle]
        start = place
    return [*found, *filler[start:]]
