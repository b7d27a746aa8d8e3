"""Queries and updates of a matrix-valued state.

B batch, T length, H heads, K key width, V value width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class Updates(NamedTuple):
    """Queries and matrix updates of each token: (B, T, H, ...), or (B, H, ...) for a single step.

    Attributes:
        q: (..., K), query that reads the output.
        k: (..., K), key under which the value is written.
        v: (..., V), value.
        log_decay: (..., K) or (..., 1), logarithm of the decay, at most 0.
        beta: (..., 1), write strength of the delta rule.
        read: (..., K), key at which the matrix is read before the write.
        erase: (..., K), key at which the value read is added back; None = -k.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor | None = None
    read: Tensor | None = None
    erase: Tensor | None = None

    def each(self, function: Callable[[Tensor], Tensor]) -> Updates:
        """Applies `function` to every tensor that is not None."""
        return self._replace(**{name: function(x) for name, x in self._asdict().items() if x is not None})
