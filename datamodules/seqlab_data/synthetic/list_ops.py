"""Nested operations on lists of digits."""

from __future__ import annotations

from seqlab_data.generated import Draw
from seqlab_data.synthetic.base import BOS, FIRST_SYMBOL, SEP, Example, SyntheticTask, answered, symbols

OPERATORS = ("MIN", "MAX", "MED", "SM")
MAX_ARGUMENTS = 5


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
        """Every operation has two arguments at least, so there are fewer of them than digits."""
        return 3 * length
