"""Stack tasks: closing brackets, pushes and pops, nested operations."""

from __future__ import annotations

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

OPERATORS = ("MIN", "MAX", "MED", "SM")
MAX_ARGUMENTS = 5


class Dyck(SyntheticTask):
    """`length` brackets of n kinds, a prefix of a well-nested word; the answer closes the open brackets, innermost
    first, followed by an end symbol: Dyck-n (Suzgun et al. 2019, "LSTM networks can perform dynamic
    counting"; Hahn 2020, "Theoretical limitations of self-attention").

    Args:
        num_kinds: n, the number of kinds of brackets.
        max_depth: maximum number of brackets open at once.
    """

    def __init__(self, num_kinds: int = 2, max_depth: int = 8) -> None:
        check_sizes(num_kinds=num_kinds, max_depth=max_depth)
        self.num_kinds, self.max_depth = num_kinds, max_depth
        self.end = FIRST_SYMBOL + 2 * num_kinds
        self.vocab_size = self.end + 1

    def example(self, draw: Draw, length: int) -> Example:
        """Kind k opens with symbol k and closes with symbol n + k."""
        word: list[int] = []
        opened: list[int] = []
        for _ in range(length):
            if opened and (len(opened) == self.max_depth or draw.integer(2)):
                word.append(self.num_kinds + opened.pop())
            else:
                opened.append(draw.integer(self.num_kinds))
                word.append(opened[-1])
        closing = [self.num_kinds + kind for kind in reversed(opened)]
        return answered([BOS, *symbols(word), SEP], [*symbols(closing), self.end])

    def longest(self, length: int) -> int:
        return length + min(length, self.max_depth) + 2


class StackManipulation(SyntheticTask):
    """A stack, bottom first, and operations on it, `length` symbols in total; the answer is the resulting stack, top
    first, followed by an end symbol (Deletang et al. 2023, "Neural networks and the Chomsky hierarchy", table 1).
    Popping an empty stack leaves it empty.

    Args:
        num_symbols: number of different symbols on the stack.
    """

    def __init__(self, num_symbols: int = 2) -> None:
        check_sizes(num_symbols=num_symbols)
        self.num_symbols = num_symbols
        self.end = FIRST_SYMBOL + 2 * num_symbols + 1
        self.vocab_size = self.end + 1

    def example(self, draw: Draw, length: int) -> Example:
        """An example of this length. Symbol s < n is an element of the stack; n + s pushes s, 2 n pops."""
        stack = draw.integers(self.num_symbols, draw.integer(length) + 1)
        actions = draw.integers(self.num_symbols + 1, length - len(stack))
        question = stack + [self.num_symbols + action for action in actions]
        for action in actions:
            stack = [*stack, action] if action < self.num_symbols else stack[:-1]
        return answered([BOS, *symbols(question), SEP], [*symbols(stack[::-1]), self.end])

    def longest(self, length: int) -> int:
        return 2 * length + 2


class ListOps(SyntheticTask):
    """An expression of `length` digits and its value, as in `[MAX 2 9 [MIN 4 7 ] 0 ]` = 9 (Nangia & Bowman 2018,
    "ListOps", section 3): minimum, maximum, median (rounded down) and sum modulo 10, each of two to five arguments.

    Symbols 0 to 9 are digits, 10 to 13 open an operation, 14 closes it.
    """

    vocab_size = FIRST_SYMBOL + 15

    def example(self, draw: Draw, length: int) -> Example:
        written, value = self._expression(draw, length)
        return answered([BOS, *symbols(written), SEP], symbols([value]))

    def _expression(self, draw: Draw, num_digits: int) -> tuple[list[int], int]:
        if num_digits == 1:
            digit = draw.integer(10)
            return [digit], digit
        operator = draw.integer(len(OPERATORS))
        num_arguments = 2 + draw.integer(min(num_digits, MAX_ARGUMENTS) - 1)
        cuts = sorted(1 + place for place in draw.sample(num_digits - 1, num_arguments - 1))
        sizes = [end - start for start, end in zip([0, *cuts], [*cuts, num_digits], strict=True)]
        arguments = [self._expression(draw, size) for size in sizes]
        written = [10 + operator, *(symbol for part, _ in arguments for symbol in part), 14]
        values = sorted(value for _, value in arguments)
        middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
        return written, (values[0], values[-1], middle, sum(values) % 10)[operator]

    def longest(self, length: int) -> int:
        """Maximum number of input tokens. Every operation has at least two arguments, so there are fewer operations
        than digits."""
        return 3 * length
