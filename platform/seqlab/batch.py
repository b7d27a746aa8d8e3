"""The batch types that data and tasks share. Torch only.

B batch, T length.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

IGNORE = -100
"""A target with this id is not predicted: it counts neither in the loss nor in a metric."""


class TokenBatch(NamedTuple):
    """Windows of a token stream for next-token prediction.

    Attributes:
        tokens: (B, T) int64, what the model reads.
        targets: (B, T) int64, the token that follows each of `tokens`, or `IGNORE`.
        num_chars: (B,) int64, characters of source text that the window's counted targets stand for.
    """

    tokens: Tensor
    targets: Tensor
    num_chars: Tensor
