"""Attention patterns: the keys that a query may attend to.

B batch, T query length, S key length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Pattern(ABC):
    """Positions that each position may see, real tokens only.

    Attributes:
        causal: whether no position sees a later one, once a first call has been read.
        window: how many of the last keys are ever seen, this many are cached; None = all.
        first_call: as of `Mixer`.
    """

    causal: bool = True
    window: int | None = None
    first_call: int = 1

    @abstractmethod
    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """(B, T, S) bool, True = may attend, for positions (B, T) and (B, S); B may be 1."""


class Causal(Pattern):
    """Each position sees itself and what came before it (Vaswani et al. 2017, section 3.2.3)."""

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return k_positions[:, None, :] <= q_positions[:, :, None]


class Bidirectional(Pattern):
    """Every position sees every position (Devlin et al. 2019, "BERT"). There is no state and no step."""

    causal = False

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return torch.ones_like(k_positions[:, None, :] == q_positions[:, :, None])


class SlidingWindow(Pattern):
    """Each position sees itself and the window - 1 before it (Beltagy et al. 2020, "Longformer", section 3.1).

    Args:
        window: at least 1.
    """

    def __init__(self, window: int = 128) -> None:
        if window < 1:
            raise ValueError(f"the window of a sliding-window pattern must be at least 1, got {window}")
        self.window: int | None = window

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        distance = q_positions[:, :, None] - k_positions[:, None, :]
        return (distance >= 0) & (distance < self.window)  # type: ignore[operator]


class PrefixCausal(Pattern):
    """The first `prefix_len` positions see each other, the others what came before (Raffel et al. 2020, figure 4).

    The first call must hold the whole prefix: what it leaves out, it cannot have seen.

    Args:
        prefix_len: at least 1.
    """

    def __init__(self, prefix_len: int = 1) -> None:
        if prefix_len < 1:
            raise ValueError(f"prefix_len must be at least 1, got {prefix_len}")
        self.first_call = prefix_len

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return (k_positions[:, None, :] <= q_positions[:, :, None]) | (k_positions[:, None, :] < self.first_call)
