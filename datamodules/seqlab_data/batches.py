"""Batches of rows: their order, a pure function of seed, epoch, batch, rank and world size, and bucketing by length.

B batch, T length, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from seqlab.batch import uncounted

BatchT = TypeVar("BatchT", covariant=True)
EpochOrder = Callable[[int, int | None, int], NDArray[np.int64]]


class Rows(Protocol[BatchT]):
    """Rows that are read in batches: windows of a text, pairs, images."""

    def __len__(self) -> int: ...

    def read(self, indices: NDArray[np.int64], /) -> BatchT:
        """The rows with these indices, (B,), at least one."""


def epoch_order(num_rows: int, seed: int | None, epoch: int) -> NDArray[np.int64]:
    """(num_rows,) order of the rows in an epoch, from sorting random 64-bit keys.

    Only the bit generator is used: NumPy guarantees a stable stream for it, unlike for `Generator.permutation`.
    """
    return np.arange(num_rows) if seed is None else shuffled(num_rows, seed, epoch)


def shuffled(num_rows: int, *entropy: int) -> NDArray[np.int64]:
    """(num_rows,) permutation seeded by the given integers."""
    keys = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(num_rows)
    return np.argsort(keys, kind="stable")


def batch_indices(
    order: NDArray[np.int64], batch: int, *, batch_size: int, rank: int = 0, world: int = 1
) -> NDArray[np.int64]:
    """(B,) row indices that a rank reads for a batch of the epoch with this order.

    The `batch_size * world` rows of each batch are split across the ranks as evenly as possible, in order. In an
    epoch's last batch some ranks may have one row fewer than others, or none.
    """
    size = batch_size * world
    return np.array_split(order[batch * size : (batch + 1) * size], world)[rank]


class Batches(Dataset[BatchT], Generic[BatchT]):
    """Endless sequence of batches: batch k is batch k mod n of epoch k div n, where an epoch has n batches.

    Args:
        batch_size: rows, or groups, per rank; a global batch has `batch_size * world` of them.
        groups: indices of the rows that are read together, (B,) each; None = every row is its own group.
        seed: random seed for the order in each epoch; None = no shuffling.
        order: function of the number of rows or groups, the seed and the epoch that returns the epoch's order.
        rank, world: rank and world size. A rank with no rows left reads one row that is excluded from every count.
    """

    def __init__(
        self,
        rows: Rows[BatchT],
        batch_size: int = 1,
        *,
        groups: Sequence[NDArray[np.int64]] | None = None,
        seed: int | None = None,
        order: EpochOrder = epoch_order,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.rows = rows
        self.groups = groups
        self.batch_size = batch_size
        self.seed = seed
        self.order = order
        self.rank = rank
        self.world = world
        self._epoch = -1
        self._order: NDArray[np.int64] = np.arange(0)

    def __len__(self) -> int:
        return -(-self._num_shared() // (self.batch_size * self.world))

    def __getitem__(self, number: int) -> BatchT:
        epoch, batch = divmod(number, len(self))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self.order(self._num_shared(), self.seed, epoch)
        mine = batch_indices(self._order, batch, batch_size=self.batch_size, rank=self.rank, world=self.world)
        if not len(mine):
            nothing: BatchT = uncounted(self.rows.read(np.zeros(1, dtype=np.int64)))
            return nothing
        # Group indices, (batch_size,), are expanded to row indices, (B,).
        return self.rows.read(mine if self.groups is None else np.concatenate([self.groups[i] for i in mine]))

    def _num_shared(self) -> int:
        return len(self.rows if self.groups is None else self.groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": -1, "_order": np.arange(0)}


class FromNext(Sampler[int]):
    """Sampler of the indices of one epoch's worth of batches, starting at the next one.

    Args:
        next_number: returns the index of the next batch; called at the start of each pass.
        num_batches: number of indices per pass.
    """

    def __init__(self, next_number: Callable[[], int], num_batches: int) -> None:
        self.next_number = next_number
        self.num_batches = num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[int]:
        start = self.next_number()
        return iter(range(start, start + self.num_batches))


class TrainLoader(DataLoader[BatchT]):
    """A DataLoader that starts at the first batch asked for, not at `iter()`.

    Lightning calls `iter()` before it has restored the number of batches done from a checkpoint. The two state methods
    mark this loader as resumable. They save nothing, since the position follows from that number.
    """

    def __iter__(self) -> Iterator[BatchT]:  # type: ignore[override]
        yield from super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def group_by_length(lengths: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
    """Row indices of each group, sorted within a group; the groups are in the order of their first rows.

    Rows of equal length are shuffled before they are grouped, so that a file sorted by class gives mixed groups.

    Raises:
        ValueError: a single row is longer than `max_tokens`.
    """
    if len(lengths) and lengths.max() > max_tokens:
        raise ValueError(
            f"data.max_tokens {max_tokens} is less than the {lengths.max()} tokens of the longest row; give more"
        )
    mixed = epoch_order(len(lengths), 0, 0)
    longest_first = mixed[np.argsort(-lengths[mixed], kind="stable")]  # (N,)
    groups = []  # (B,) each: as many of the longest remaining rows as fit when padded to the first
    while len(longest_first):
        size = max_tokens // max(int(lengths[longest_first[0]]), 1)
        groups.append(np.sort(longest_first[:size]))
        longest_first = longest_first[size:]
    return sorted(groups, key=lambda group: int(group[0]))


class Groups:
    """Groups of each split, rebuilt when `max_tokens` changes."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, list[NDArray[np.int64]]]] = {}

    def of(self, split: str, lengths: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
        """Groups that `group_by_length` makes from the rows of a split, given their lengths."""
        if split not in self._made or self._made[split][0] != max_tokens:
            self._made[split] = max_tokens, group_by_length(lengths, max_tokens)
        return self._made[split][1]


def pad(rows: Sequence[NDArray[Any]], value: float) -> Tensor:
    """Rows (T,) or (T, F) right-padded with `value` to the longest: (B, T) or (B, T, F), int64 for integers and float32
    for other numbers."""
    dtype = np.int64 if rows[0].dtype.kind == "i" else np.float32
    padded = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), value, dtype=dtype)
    for filled, row in zip(padded, rows, strict=True):
        filled[: len(row)] = row
    return torch.from_numpy(padded)


def pad_mask(rows: Sequence[NDArray[Any]]) -> Tensor:
    """(B, T) bool padding mask for the rows that `pad` pads; True = real token."""
    lengths = np.array([len(row) for row in rows])
    return torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
