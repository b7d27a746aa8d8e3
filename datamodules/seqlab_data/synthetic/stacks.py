"""Following a stack: what closes open brackets, and what a stack holds after pushes and pops."""

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


class Dyck(SyntheticTask):
    """`length` brackets of n kinds that could be continued to a well-nested word; the answer closes those that are
    open, the innermost first, and then an end: Dyck-n (Suzgun et al. 2019, "LSTM networks can perform dynamic
    counting"; Hahn 2020, "Theoretical limitations of self-attention").

    Args:
        num_kinds: n.
        max_depth: the most that are open at once.
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
    """A stack, the bottom first, and what is done to it, `length` symbols in all; the answer is the stack after it, the
    top first, and then an end (Deletang et al. 2023, "Neural networks and the Chomsky hierarchy", table 1). An empty
    stack stays empty when it is popped.

    Args:
        num_symbols: how many different ones may lie on it.
    """

    def __init__(self, num_symbols: int = 2) -> None:
        check_sizes(num_symbols=num_symbols)
        self.num_symbols = num_symbols
        self.end = FIRST_SYMBOL + 2 * num_symbols + 1
        self.vocab_size = self.end + 1

    def example(self, draw: Draw, length: int) -> Example:
        """Symbol s < n lies on the stack; n + s pushes s, 2 n pops."""
        stack = draw.integers(self.num_symbols, draw.integer(length) + 1)
        actions = draw.integers(self.num_symbols + 1, length - len(stack))
        question = stack + [self.num_symbols + action for action in actions]
        for action in actions:
            stack = [*stack, action] if action < self.num_symbols else stack[:-1]
        return answered([BOS, *symbols(question), SEP], [*symbols(stack[::-1]), self.end])

    def longest(self, length: int) -> int:
        return 2 * length + 2
