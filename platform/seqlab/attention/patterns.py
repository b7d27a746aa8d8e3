"""Attention patterns: the keys that a query may attend to.

B batch, T query length, S key length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Pattern(ABC):
    """Rule for the positions that each position may attend to; padding is masked separately.

    Attributes:
        causal: whether no position attends to a later one, apart from positions within the first call.
        window: number of most recent keys that are visible, and so cached; None = all keys.
        first_call: minimum number of tokens in the first call, as `Mixer.first_call`.
    """

    causal: bool = True
    window: int | None = None
    first_call: int = 1

    @abstractmethod
    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """(B, T, S) bool, True = may attend, for positions (B, T) and (B, S); B may be 1."""


class Causal(Pattern):
    """Causal mask: each position sees itself and all earlier ones (Vaswani et al. 2017, section 3.2.3)."""

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return k_positions[:, None, :] <= q_positions[:, :, None]


class Bidirectional(Pattern):
    """No mask: every position sees every position (Devlin et al. 2019, "BERT"). It has no state and no `step`."""

    causal = False

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return torch.ones_like(k_positions[:, None, :] == q_positions[:, :, None])


class SlidingWindow(Pattern):
    """Causal mask over the last `window` positions, including the query's (Beltagy et al. 2020, "Longformer", section
    3.1).

    Args:
        window: number of visible positions, at least 1.
    """

    def __init__(self, window: int = 128) -> None:
        if window < 1:
            raise ValueError(f"the window of a sliding-window pattern must be at least 1, got {window}")
        self.window: int | None = window

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        distance = q_positions[:, :, None] - k_positions[:, None, :]  # (B, T, S)
        return (distance >= 0) & (distance < self.window)  # type: ignore[operator]


class PrefixCausal(Pattern):
    """Prefix-LM mask: bidirectional over the first `prefix_len` positions, causal after (Raffel et al. 2020, figure 4).

    The first (prefill) call must contain the whole prefix, since prefix tokens attend to each other.

    Args:
        prefix_len: length of the prefix in tokens, at least 1.
    """

    def __init__(self, prefix_len: int = 1) -> None:
        if prefix_len < 1:
            raise ValueError(f"prefix_len must be at least 1, got {prefix_len}")
        self.first_call = prefix_len

    def allows(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return (k_positions[:, None, :] <= q_positions[:, :, None]) | (k_positions[:, None, :] < self.first_call)
