"""Mixture of several corpora in given shares: their windows as one set of rows, and the order of an epoch.

B batch, T sequence length, N windows of all corpora.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import TokenBatch
from seqlab_data.batches import shuffled
from seqlab_data.windows import Windows


def check_mixture(path: object, mixture: Mapping[str, float] | None) -> None:
    """Rejects shares that do not match the corpora in `path`.

    Raises:
        ValueError: only one of the two is given, their names differ, or the shares are not positive or do not sum to 1.
    """
    if not isinstance(path, Mapping) and mixture is None:
        return
    if not isinstance(path, Mapping) or not mixture or set(path) != set(mixture):
        names, shares = (", ".join(some) if isinstance(some, Mapping) else "none" for some in (path, mixture))
        raise ValueError(
            "data.mixture must give a share to each corpus that data.path names, as in --data.path '{web: a/*.txt, "
            f"books: b.txt}}' --data.mixture '{{web: 0.7, books: 0.3}}'; got shares of {shares or 'none'} and paths of "
            f"{names or 'none'}"
        )
    if not (min(mixture.values()) > 0 and abs(sum(mixture.values()) - 1) <= 1e-9):
        raise ValueError(f"data.mixture must be positive shares that sum to 1, got {dict(mixture)}")


class JoinedWindows:
    """Concatenated windows of several corpora."""

    def __init__(self, parts: Sequence[Windows]) -> None:
        self.parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: NDArray[np.int64]) -> TokenBatch:
        """The windows with these indices, (B,), as in `Windows`."""
        number = np.searchsorted(self._ends, indices, side="right")  # (B,) index of each window's corpus
        places, batches = [], []
        for k in np.unique(number):
            places.append(np.flatnonzero(number == k))
            first = self._ends[k] - len(self.parts[k])
            batches.append(self.parts[k].read(indices[places[-1]] - first))
        order = torch.from_numpy(np.argsort(np.concatenate(places)))
        # Windows have no documents.
        fields = (torch.cat(field)[order] for field in zip(*(batch[:-1] for batch in batches), strict=True))
        return TokenBatch(*fields)._replace(rows=torch.from_numpy(indices.copy()))


def mixed_order(
    sizes: Sequence[int], shares: Sequence[float], num_rows: int, seed: int | None, epoch: int
) -> NDArray[np.int64]:
    """(N,) window indices of an epoch; the number from each corpus is its share of N to within one.

    Each corpus is traversed in passes, each with a different shuffle, and an epoch continues the pass in which the
    previous epoch ended: no window is repeated before every window of its corpus has been read as often.

    Args:
        sizes: number of windows of each corpus; N is their sum.
        shares: share of each corpus.
        seed: random seed; None = windows in sequential order, without mixing.
    """
    assert num_rows == sum(sizes)
    if seed is None:
        return np.arange(num_rows)
    found, first = [], 0
    for number, (size, count) in enumerate(zip(sizes, _counts(num_rows, shares), strict=True), start=1):
        places = np.arange(epoch * count, (epoch + 1) * count)
        for one in np.unique(places // size):
            order = shuffled(size, seed, int(one), number)
            found.append(first + order[places[places // size == one] % size])
        first += size
    return np.concatenate(found)[shuffled(num_rows, seed, epoch)]


def _counts(total: int, shares: Sequence[float]) -> list[int]:
    """Integer part of `total` for each share, to within one; the parts sum to `total`."""
    ends = [round(total * end) for end in np.cumsum(shares)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
