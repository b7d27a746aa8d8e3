"""Queries of a matrix that is updated over time, and its updates.

B batch, T length, H heads, K key width, V value width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class Updates(NamedTuple):
    """The tokens' queries and updates of the matrix: (B, T, H, ...), or (B, H, ...) at one step.

    Attributes:
        q: (..., K) what is read out.
        k: (..., K) where the value is written.
        v: (..., V).
        log_decay: (..., K) or (..., 1), at most 0.
        beta: (..., 1) how much of the difference the delta rule writes.
        read: (..., K) where the matrix is read before it is written.
        erase: (..., K) where what was read is added; None = -k.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor | None = None
    read: Tensor | None = None
    erase: Tensor | None = None

    def each(self, function: Callable[[Tensor], Tensor]) -> Updates:
        """The same with `function` of what is given."""
        return self._replace(**{name: function(x) for name, x in self._asdict().items() if x is not None})
