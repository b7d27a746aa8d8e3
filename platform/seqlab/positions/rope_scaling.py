"""Frequency scaling of RoPE for contexts longer than the training length.

W rotated channels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from seqlab.positions.constant import geometric


class RotaryScaling(ABC):
    """Frequencies of RoPE.

    Attributes:
        temperature: factor on rotated queries and keys, each.
    """

    temperature: float = 1.0

    @abstractmethod
    def frequencies(self, base: float, width: int) -> list[float]:
        """W/2 frequencies in radians per token, the highest first."""


class NoScaling(RotaryScaling):
    """Unscaled frequencies base^(-2i/W) (Su et al. 2021)."""

    def frequencies(self, base: float, width: int) -> list[float]:
        return geometric(base, width)


class LinearScaling(RotaryScaling):
    """Position interpolation: every frequency divided by `factor` (Chen et al. 2023, equation 4).

    Args:
        factor: the new length over the trained one, at least 1.
    """

    def __init__(self, factor: float = 4.0) -> None:
        self.factor = _checked(factor)

    def frequencies(self, base: float, width: int) -> list[float]:
        return [frequency / self.factor for frequency in geometric(base, width)]


class NTKScaling(RotaryScaling):
    """The base times factor^(W/(W - 2)) (bloc97 2023; Peng et al. 2023, section 3.1, "NTK-aware"): the slowest
    frequency is divided by `factor`, the fastest by 1.

    Args:
        factor: the new length over the trained one, at least 1.
    """

    def __init__(self, factor: float = 4.0) -> None:
        self.factor = _checked(factor)

    def frequencies(self, base: float, width: int) -> list[float]:
        return geometric(base * self.factor ** (width / max(width - 2, 1)), width)


class YaRN(RotaryScaling):
    """Keeps frequencies with more than `fast` turns within the training length, divides those with fewer than `slow`
    turns by `factor` and interpolates in between; queries and keys are multiplied by 0.1 ln(factor) + 1 (Peng et al.
    2023, "YaRN", section 3.4).

    The interpolation is linear in the channel index, between whole channels, as in the authors' code and every model
    since, and not in the number of turns, as in the paper's equation 13.

    Args:
        original_seq_len: training length in tokens.
        factor: ratio of the new length to the training length, at least 1.
        fast: number of turns above which a frequency is kept, beta in the paper.
        slow: number of turns below which a frequency is divided by `factor`, alpha in the paper.
    """

    def __init__(
        self, original_seq_len: int = 2048, factor: float = 4.0, *, fast: float = 32.0, slow: float = 1.0
    ) -> None:
        self.original_seq_len = _checked_turns("YaRN", original_seq_len, slow, fast)
        self.factor = _checked(factor)
        self.fast = fast
        self.slow = slow
        self.temperature = 0.1 * math.log(factor) + 1.0

    def frequencies(self, base: float, width: int) -> list[float]:
        first = max(math.floor(self._channel(self.fast, base, width)), 0)
        last = min(math.ceil(self._channel(self.slow, base, width)), width - 1)
        length = last - first if last != first else 0.001
        ramp = [min(max((i - first) / length, 0.0), 1.0) for i in range(width // 2)]
        return [
            frequency * (1.0 - part + part / self.factor)
            for frequency, part in zip(geometric(base, width), ramp, strict=True)
        ]

    def _channel(self, turns: float, base: float, width: int) -> float:
        """Channel i whose frequency base^(-2i/W) makes `turns` turns within the training length."""
        return width * math.log(self.original_seq_len / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))


class Llama3Scaling(RotaryScaling):
    """Keeps frequencies with more than `fast` turns within the training length, divides those with fewer than `slow`
    turns by `factor`, and interpolates in between linearly in the number of turns (Llama 3.1, as in its code).

    Args:
        original_seq_len: training length in tokens.
        factor: ratio of the new length to the training length, at least 1.
        fast: number of turns above which a frequency is kept.
        slow: number of turns below which a frequency is divided by `factor`.
    """

    def __init__(
        self, original_seq_len: int = 8192, factor: float = 8.0, *, fast: float = 4.0, slow: float = 1.0
    ) -> None:
        self.original_seq_len = _checked_turns("Llama3Scaling", original_seq_len, slow, fast)
        self.factor = _checked(factor)
        self.fast = fast
        self.slow = slow

    def frequencies(self, base: float, width: int) -> list[float]:
        scaled = []
        for frequency in geometric(base, width):
            turns = self.original_seq_len * frequency / (2.0 * math.pi)
            kept = min(max((turns - self.slow) / (self.fast - self.slow), 0.0), 1.0)
            scaled.append(frequency * (kept + (1.0 - kept) / self.factor))
        return scaled


def _checked_turns(name: str, original_seq_len: int, slow: float, fast: float) -> int:
    if original_seq_len < 1 or not 0 < slow < fast:
        raise ValueError(
            f"{name} needs an original_seq_len of at least 1 and 0 < slow < fast, got original_seq_len "
            f"{original_seq_len}, slow {slow} and fast {fast}"
        )
    return original_seq_len


def _checked(factor: float) -> float:
    if factor < 1:
        raise ValueError(f"the factor of RoPE scaling must be at least 1, got {factor}")
    return factor
