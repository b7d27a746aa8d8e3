"""Positional encodings as their papers write them, one vector and one position at a time, in float64."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


class NaiveEncoding:
    """No positions. An encoding overrides the one place where it acts."""

    def embed(self, x: Tensor, position: int, weights: Weights) -> Tensor:
        """The embedding x (D,) of the token at `position`."""
        return x

    def query(self, x: Tensor, position: int) -> Tensor:
        """The query x (K,) of one head at `position`, rotated."""
        return x

    def key(self, x: Tensor, position: int) -> Tensor:
        """The key x (K,) of one head at `position`, rotated."""
        return x

    def bias(self, head: int, num_heads: int, query: Tensor, keys: Tensor, at: list[int], weights: Weights) -> Tensor:
        """(S,): what is added to the scores of a query (K,) in head 0, 1, ... with the keys (S, K) that it sees.

        `at` are the positions of the keys, and last the query's own.
        """
        return torch.zeros(len(keys), dtype=torch.float64)

    def value(self, q_position: int, k_position: int, weights: Weights) -> Tensor | float:
        """(K,): what is added to the value at k_position, as seen from q_position."""
        return 0.0


class NaiveEmbedded(NaiveEncoding):
    """x + code(p), or the matrix P times (x, code(p)) where that is concatenated."""

    def __init__(self, combine: str = "add") -> None:
        self.combine = combine

    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        """What is told of a position: one number for all channels, or as many as there are."""
        raise NotImplementedError

    def embed(self, x: Tensor, position: int, weights: Weights) -> Tensor:
        code = self.code(position, len(x), weights)
        if self.combine == "add":
            return x + code
        return weights["projection"] @ torch.cat((x, code))


class NaiveInteger(NaiveEmbedded):
    """p, or p / longest."""

    def __init__(self, combine: str = "add", longest: int = 1) -> None:
        super().__init__(combine)
        self.longest = longest

    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        return torch.tensor([position / self.longest], dtype=torch.float64)


class NaiveBinary(NaiveEmbedded):
    """The digits of p to the base 2 read from the right, as many as all positions below `longest` have."""

    def __init__(self, combine: str = "add", longest: int = 256) -> None:
        super().__init__(combine)
        self.longest = longest

    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        width = d_model if self.combine == "add" else len(f"{self.longest - 1:b}")
        return torch.tensor([float(digit) for digit in reversed(f"{position:0{width}b}")], dtype=torch.float64)


class NaiveSinusoidal(NaiveEmbedded):
    """Vaswani et al. 2017, section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos(the same)."""

    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        encoding = []
        for channel in range(d_model):
            angle = position / 10000 ** (2 * (channel // 2) / d_model)
            encoding.append(math.sin(angle) if channel % 2 == 0 else math.cos(angle))
        return torch.tensor(encoding, dtype=torch.float64)


class NaiveLearned(NaiveEmbedded):
    """Gehring et al. 2017, section 3.1: e = w + p."""

    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        return weights["table.weight"][position]


class NaiveRoPE(NaiveEncoding):
    """Su et al. 2021, section 3.2.2: a pair of channels is a complex number times e^(j m theta_i), with
    theta_i = 10000^(-2i/d). The paper pairs (2i, 2i + 1), the library (i, i + d/2): the channels are permuted.
    """

    def query(self, x: Tensor, position: int) -> Tensor:
        half = len(x) // 2
        turns = [cmath.exp(1j * position * 10000 ** (-2 * i / len(x))) for i in range(half)]
        turned = torch.complex(x[:half], x[half:]) * torch.tensor(turns, dtype=torch.complex128)
        return torch.cat((turned.real, turned.imag))

    def key(self, x: Tensor, position: int) -> Tensor:
        return self.query(x, position)


class NaiveALiBi(NaiveEncoding):
    """Press et al. 2022, section 3: score - m * distance. For n = 2^a heads the slopes m are the geometric sequence
    that starts at 2^(-8/n) with that ratio; other n (the authors' code) take the sequence of the power below n, and
    then every other slope, from the first, of the power above n.
    """

    def bias(self, head: int, num_heads: int, query: Tensor, keys: Tensor, at: list[int], weights: Weights) -> Tensor:
        *k_positions, q_position = at
        slope = self.slope(head, num_heads)
        return torch.tensor([-slope * abs(q_position - p) for p in k_positions], dtype=torch.float64)

    def slope(self, head: int, num_heads: int) -> float:
        below = 1
        while 2 * below <= num_heads:
            below *= 2
        if head < below:
            return float((2 ** (-8 / below)) ** (head + 1))
        above = 2 * below
        return float((2 ** (-8 / above)) ** (2 * (head - below) + 1))
