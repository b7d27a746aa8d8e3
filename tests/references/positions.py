"""Positional encodings as their papers write them, one vector and one position at a time, in float64."""

from __future__ import annotations

import cmath
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from references.naive import Weights, sigmoid


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

        The query is scaled: with the keys it gives the scores. `at` are the positions of the keys, and last the
        query's own.
        """
        return torch.zeros(len(keys), dtype=torch.float64)

    def value(self, q_position: int, k_positions: list[int], weights: Weights) -> Tensor | float:
        """(S, K): what is added to the values at k_positions, as seen from q_position."""
        return 0.0


@dataclass
class NaiveEmbedded(NaiveEncoding, ABC):
    """x + code(p), or the matrix P times (x, code(p)) where that is concatenated."""

    combine: str = "add"

    @abstractmethod
    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        """The code of a position: one number for all channels, or one for each."""

    def embed(self, x: Tensor, position: int, weights: Weights) -> Tensor:
        code = self.code(position, len(x), weights)
        if self.combine == "add":
            return x + code
        return weights["projection"] @ torch.cat((x, code))


@dataclass
class NaiveInteger(NaiveEmbedded):
    """p, or p / longest."""

    longest: int = 1

    def code(self, position: int, d_model: int, weights: Weights) -> Tensor:
        return torch.tensor([position / self.longest], dtype=torch.float64)


@dataclass
class NaiveBinary(NaiveEmbedded):
    """The digits of p to the base 2 read from the right, as many as all positions below `longest` have."""

    longest: int = 256

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


@dataclass
class NaiveRoPE(NaiveEncoding):
    """Su et al. 2021, section 3.2.2: a pair of channels is a complex number times e^(j m theta_i), with
    theta_i = 10000^(-2i/d). The paper pairs (2i, 2i + 1), the library (i, i + d/2): the channels are permuted.

    Args:
        theta: of i and d.
        parts: d is this part of the channels, rounded down to an even number; the others are not rotated.
        temperature: what the rotated channels are multiplied by.
    """

    theta: Callable[[int, int], float] = lambda i, d: 10000 ** (-2 * i / d)
    parts: float = 1.0
    temperature: float = 1.0

    def query(self, x: Tensor, position: int) -> Tensor:
        half = int(len(x) * self.parts) // 2
        turns = [self.temperature * cmath.exp(1j * position * self.theta(i, 2 * half)) for i in range(half)]
        turned = torch.complex(x[:half], x[half : 2 * half]) * torch.tensor(turns, dtype=torch.complex128)
        return torch.cat((turned.real, turned.imag, x[2 * half :]))

    def key(self, x: Tensor, position: int) -> Tensor:
        return self.query(x, position)


def linear_theta(s: float) -> Callable[[int, int], float]:
    """Chen et al. 2023, equation 4: position m becomes m / s."""
    return lambda i, d: 10000 ** (-2 * i / d) / s


def ntk_theta(s: float) -> Callable[[int, int], float]:
    """Peng et al. 2023, equation 16: b' = b s^(d/(d-2))."""
    return lambda i, d: (10000 * s ** (d / (d - 2))) ** (-2 * i / d) if d > 2 else 1.0


def llama3_theta(length: int, s: float, beta: float = 4, alpha: float = 1) -> Callable[[int, int], float]:
    """The code of Llama 3.1: wavelengths below length / beta stay, those above length / alpha are s times as long."""

    def theta(i: int, d: int) -> float:
        unscaled = 10000 ** (-2 * i / d)
        wavelength = 2 * math.pi / unscaled
        if wavelength < length / beta:
            return unscaled
        if wavelength > length / alpha:
            return unscaled / s
        smooth = (length / wavelength - alpha) / (beta - alpha)
        return (1 - smooth) * unscaled / s + smooth * unscaled

    return theta


def yarn_theta(length: int, s: float, beta: float = 32, alpha: float = 1) -> Callable[[int, int], float]:
    """Peng et al. 2023, section 3.2, with the ramp of the authors' code: 0 up to the channel (rounded down) of beta
    turns within `length`, 1 from that (rounded up) of alpha turns. A pair turns length theta / (2 pi) times.
    """

    def channel_of(turns: float, d: int) -> float:
        return -d / 2 * math.log(2 * math.pi * turns / length, 10000)

    def theta(i: int, d: int) -> float:
        low = max(0, math.floor(channel_of(beta, d)))
        high = min(d - 1, math.ceil(channel_of(alpha, d)))
        interpolated = (i > low) * 1.0 if low == high else min(1.0, max(0.0, (i - low) / (high - low)))
        unscaled = 10000 ** (-2 * i / d)
        return interpolated * unscaled / s + (1 - interpolated) * unscaled

    return theta


@dataclass
class NaiveXPos(NaiveEncoding):
    """Sun et al. 2022, algorithm 1: q_n = q zeta^n e^(i n theta) and k_m = k zeta^-m e^(i m theta), with
    zeta_i = (2i/d + 0.4) / 1.4 and n and m counted in units of 512, here from `middle`.
    """

    middle: int

    def query(self, x: Tensor, position: int) -> Tensor:
        return self.turned(x, position, 1)

    def key(self, x: Tensor, position: int) -> Tensor:
        return self.turned(x, position, -1)

    def turned(self, x: Tensor, position: int, sign: int) -> Tensor:
        half = len(x) // 2
        factors = []
        for i in range(half):
            zeta = (i / half + 0.4) / 1.4
            turn = cmath.exp(1j * position * 10000 ** (-i / half))
            factors.append(turn * zeta ** (sign * (position - self.middle) / 512))
        turned = torch.complex(x[:half], x[half:]) * torch.tensor(factors, dtype=torch.complex128)
        return torch.cat((turned.real, turned.imag))


@dataclass
class NaiveRandomized(NaiveEncoding):
    """Ruoss et al. 2023, section 3.1: position i becomes the i-th smallest of those that were drawn."""

    encoding: NaiveEncoding

    def embed(self, x: Tensor, position: int, weights: Weights) -> Tensor:
        drawn = sorted(weights["draw"].tolist())[position]
        inner = {name.removeprefix("encoding."): weight for name, weight in weights.items()}
        return self.encoding.embed(x, drawn, inner)


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


@dataclass
class NaiveT5(NaiveEncoding):
    """Raffel et al. 2020, section 2.1, as the authors' code (mesh_tensorflow, `_relative_position_bucket`) has it."""

    num_buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = False

    def bias(self, head: int, num_heads: int, query: Tensor, keys: Tensor, at: list[int], weights: Weights) -> Tensor:
        *k_positions, q_position = at
        return weights["table"][[self.bucket(p - q_position) for p in k_positions], head]

    def bucket(self, relative_position: int) -> int:
        n, num_buckets, first = -relative_position, self.num_buckets, 0
        if self.bidirectional:
            num_buckets //= 2
            first = num_buckets if n < 0 else 0
            n = abs(n)
        n = max(n, 0)
        max_exact = num_buckets // 2
        if n < max_exact:
            return first + n
        part = math.log(n / max_exact) / math.log(self.max_distance / max_exact)
        # Where the logarithms divide evenly, as at 16, 32 and 64 of 8 and 128, they do so but for rounding.
        return first + min(max_exact + int(part * (num_buckets - max_exact) + 1e-9), num_buckets - 1)


@dataclass
class NaiveShaw(NaiveEncoding):
    """Shaw et al. 2018, equations 3 and 4: e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(d_z), and
    z_i = sum_j alpha_ij (x_j W^V + a^V_ij), with a_ij = w_clip(j - i, k).
    """

    clip: int = 16

    def row(self, q_position: int, k_position: int) -> int:
        return max(-self.clip, min(self.clip, k_position - q_position)) + self.clip

    def bias(self, head: int, num_heads: int, query: Tensor, keys: Tensor, at: list[int], weights: Weights) -> Tensor:
        *k_positions, q_position = at
        return weights["key_table"][[self.row(q_position, p) for p in k_positions]] @ query

    def value(self, q_position: int, k_positions: list[int], weights: Weights) -> Tensor | float:
        if "value_table" not in weights:
            return 0.0
        return weights["value_table"][[self.row(q_position, p) for p in k_positions]]


class NaiveCoPE(NaiveEncoding):
    """Golovneva et al. 2024, equations 3 to 6: g_ij = sigmoid(q_i k_j), p_ij = sum_{k=j..i} g_ik, and
    e[p] = (p - floor p) e[ceil p] + (1 - p + floor p) e[floor p]; q_i e[p_ij] is added to the score.
    """

    def bias(self, head: int, num_heads: int, query: Tensor, keys: Tensor, at: list[int], weights: Weights) -> Tensor:
        *k_positions, q_position = at
        gates, length = sigmoid(keys @ query), len(weights["table"])
        p = torch.tensor(k_positions)
        first, last = p.clamp(max=q_position)[:, None], p.clamp(min=q_position)[:, None]
        between = (first <= p) & (p <= last)  # (S, S)
        count = torch.clamp(between.double() @ gates, max=length - 1)
        below, above = torch.floor(count.detach()), torch.ceil(count.detach())
        at_below, at_above = weights["table"][below.long()], weights["table"][above.long()]
        embedding = (count - below)[:, None] * at_above + (1 - count + below)[:, None] * at_below
        return embedding @ query
