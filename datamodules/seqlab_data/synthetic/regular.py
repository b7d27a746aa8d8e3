"""State tracking: tasks of finite automata (Deletang et al. 2023, "Neural networks and the Chomsky hierarchy", table
1)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from itertools import permutations
from math import factorial

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


class Automaton(SyntheticTask):
    """Tasks with `length` input symbols and an answer of one symbol."""

    def __init__(self, num_symbols: int, num_answers: int) -> None:
        self.num_symbols = num_symbols
        self.vocab_size = FIRST_SYMBOL + max(num_symbols, num_answers)

    @abstractmethod
    def answer(self, values: Sequence[int]) -> int: ...

    def example(self, draw: Draw, length: int) -> Example:
        values = draw.integers(self.num_symbols, length)
        return answered([BOS, *symbols(values), SEP], symbols([self.answer(values)]))

    def longest(self, length: int) -> int:
        return length + 2


class Parity(Automaton):
    """Parity of the number of ones: 1 = odd."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def answer(self, values: Sequence[int]) -> int:
        return sum(values) % 2


class EvenPairs(Automaton):
    """Parity of the total number of ab and ba: 1 = odd, which means that the first and last symbol differ."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def answer(self, values: Sequence[int]) -> int:
        return int(values[0] != values[-1])


class CycleNavigation(Automaton):
    """Final position on a cycle after steps backward, steps forward and pauses.

    Args:
        num_places: number of positions on the cycle.
    """

    def __init__(self, num_places: int = 5) -> None:
        check_sizes(num_places=num_places)
        super().__init__(3, num_places)
        self.num_places = num_places

    def answer(self, values: Sequence[int]) -> int:
        return sum(value - 1 for value in values) % self.num_places


class ModularArithmetic(SyntheticTask):
    """`length` numbers joined by +, - or x, evaluated from left to right without brackets or precedence.

    Args:
        modulus: modulus of the numbers and of the result.
    """

    def __init__(self, modulus: int = 5) -> None:
        check_sizes(modulus=modulus)
        self.modulus = modulus
        self.vocab_size = FIRST_SYMBOL + modulus + 3

    def example(self, draw: Draw, length: int) -> Example:
        numbers, operators = draw.integers(self.modulus, length), draw.integers(3, length - 1)
        question = [numbers[0]]
        for operator, number in zip(operators, numbers[1:], strict=True):
            question += [self.modulus + operator, number]
        return answered([BOS, *symbols(question), SEP], symbols([self.worked_out(numbers, operators)]))

    def worked_out(self, numbers: Sequence[int], operators: Sequence[int]) -> int:
        def apply(total: int, step: tuple[int, int]) -> int:
            operator, number = step
            return (total + number, total - number, total * number)[operator] % self.modulus

        return reduce(apply, zip(operators, numbers[1:], strict=True), numbers[0])

    def longest(self, length: int) -> int:
        return 2 * length + 1


class PermutationProduct(SyntheticTask):
    """Product of the permutations read so far, at every symbol: the word problem of the symmetric group (Merrill et al.
    2024, "The illusion of state in state-space models", section 3). For five items and more it is beyond TC0, which
    bounds attention and linear recurrences with diagonal transitions. Items are permuted by one symbol for each of the
    permutations, numbered in lexicographic order.

    Args:
        num_items: number of permuted items, from 2 to 6.

    Raises:
        ValueError: num_items is out of range.
    """

    def __init__(self, num_items: int = 5) -> None:
        if not 2 <= num_items <= 6:
            raise ValueError(f"num_items must be from 2 to 6, got {num_items}")
        self.num_items = num_items
        self.vocab_size = FIRST_SYMBOL + factorial(num_items)

    def example(self, draw: Draw, length: int) -> Example:
        elements = [*permutations(range(self.num_items))]
        values = draw.integers(len(elements), length)
        product, products = elements[0], []
        for value in values:
            product = tuple(elements[value][item] for item in product)
            products.append(elements.index(product))
        return Example([BOS, *symbols(values)], [IGNORE, *symbols(products)])

    def longest(self, length: int) -> int:
        return length + 1
