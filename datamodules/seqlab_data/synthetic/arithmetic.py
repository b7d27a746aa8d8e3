"""Arithmetic tasks on digit strings."""

from __future__ import annotations

from seqlab_data.generated import Draw
from seqlab_data.synthetic.base import BOS, FIRST_SYMBOL, SEP, Example, SyntheticTask, answered, symbols


class Addition(SyntheticTask):
    """Addition of two numbers of `length` digits; the sum has one digit more, and leading zeros are written
    (Kazemnejad et al. 2023, "The impact of positional encoding on length generalization"; Deletang
    et al. 2023, "Neural networks and the Chomsky hierarchy", table 1, in base 2).

    Args:
        base: base of the digits.
        lowest_first: if True, all numbers are written least significant digit first, so that each digit of the sum
            follows from the input and the preceding digit (Lee et al. 2023, "Teaching arithmetic to small
            transformers").
    """

    def __init__(self, base: int = 10, lowest_first: bool = False) -> None:
        if base < 2:
            raise ValueError(f"base must be at least 2, got {base}")
        self.base, self.lowest_first = base, lowest_first
        self.plus = FIRST_SYMBOL + base
        self.vocab_size = self.plus + 1

    def example(self, draw: Draw, length: int) -> Example:
        first, second = draw.integers(self.base, length), draw.integers(self.base, length)
        total, carry = [], 0
        for one, other in zip(first, second, strict=True):  # least significant digit first
            carry, digit = divmod(one + other + carry, self.base)
            total.append(digit)
        total.append(carry)
        a, b, c = (symbols(digits if self.lowest_first else digits[::-1]) for digits in (first, second, total))
        return answered([BOS, *a, self.plus, *b, SEP], c)

    def longest(self, length: int) -> int:
        return 3 * length + 3
