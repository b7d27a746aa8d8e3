"""Batches of rows of similar length.

B batch, T length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqlab_data.batch_order import BatchT, Rows, epoch_order


class Buckets(Generic[BatchT]):
    """Groups of rows that are read together, as rows of their own: `Batches(Buckets(...), 1)` orders and shares them.

    Which rows are together follows from the lengths and `max_tokens` alone. Every row is in one group.

    Args:
        rows: what is grouped.
        lengths: (N,) how many tokens each row has.
        max_tokens: of a group, padded: its rows x its longest.
    """

    def __init__(self, rows: Rows[BatchT], lengths: NDArray[np.int64], max_tokens: int) -> None:
        self.rows = rows
        self.groups = group_by_length(lengths, max_tokens)

    def __len__(self) -> int:
        return len(self.groups)

    def read(self, indices: NDArray[np.int64], /) -> BatchT:
        """The rows of the group with this index, (1,). With none, what the rows give for none."""
        assert len(indices) <= 1, "groups are read one by one"
        return self.rows.read(self.groups[indices[0]] if len(indices) else indices)


def group_by_length(lengths: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
    """The rows of each group, in the order of the rows, as is the order of the groups by their first row.

    Rows of one length are mixed before they are cut into groups, so that a file sorted by class gives mixed groups.

    Raises:
        ValueError: a row alone has more than `max_tokens`.
    """
    if len(lengths) and lengths.max() > max_tokens:
        raise ValueError(f"data.max_tokens {max_tokens} is less than the {lengths.max()} tokens of the longest row")
    mixed = epoch_order(len(lengths), 0, 0)
    longest_first = mixed[np.argsort(-lengths[mixed], kind="stable")]
    groups = []
    while len(longest_first):
        size = max_tokens // max(int(lengths[longest_first[0]]), 1)
        groups.append(np.sort(longest_first[:size]))
        longest_first = longest_first[size:]
    return sorted(groups, key=lambda group: int(group[0]))


def pad(rows: Sequence[NDArray[Any]], value: float) -> Tensor:
    """Rows (T,) or (T, F) filled up at their ends with `value` to the longest of them: (B, T) or (B, T, F), int64 of
    integers and float32 of numbers."""
    dtype = np.int64 if rows[0].dtype.kind == "i" else np.float32
    padded = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), value, dtype=dtype)
    for filled, row in zip(padded, rows, strict=True):
        filled[: len(row)] = row
    return torch.from_numpy(padded)


def pad_mask(rows: Sequence[NDArray[Any]]) -> Tensor:
    """(B, T) bool, True = a real token of the rows that `pad` fills up."""
    lengths = np.array([len(row) for row in rows])
    return torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
