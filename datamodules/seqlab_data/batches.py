"""Batches of rows: their order, a pure function of seed, epoch, batch, rank and world, and rows of similar length
together.

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
    """(num_rows,) the order of the rows in an epoch: the ranks of random 64-bit keys.

    Only the bit generator is drawn from: unlike `Generator.permutation`, NumPy keeps its stream for ever.
    """
    return np.arange(num_rows) if seed is None else shuffled(num_rows, seed, epoch)


def shuffled(num_rows: int, *entropy: int) -> NDArray[np.int64]:
    """(num_rows,) an order that follows from the numbers given."""
    keys = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(num_rows)
    return np.argsort(keys, kind="stable")


def batch_indices(
    order: NDArray[np.int64], batch: int, *, batch_size: int, rank: int = 0, world: int = 1
) -> NDArray[np.int64]:
    """(B,) the rows that a rank reads in a batch of the epoch with this order.

    The ranks share the `batch_size * world` rows of each batch as evenly as can be, in order: in an epoch's
    last batch some may have one less than others, or none.
    """
    size = batch_size * world
    return np.array_split(order[batch * size : (batch + 1) * size], world)[rank]


class Batches(Dataset[BatchT], Generic[BatchT]):
    """Batch k of an endless sequence: batch k mod n of epoch k div n, where an epoch is n batches.

    Args:
        batch_size: rows a rank, or groups; a batch is `batch_size * world` of them over all ranks.
        groups: the rows that are read together, (B,) each; None = every row for itself.
        seed: of the order in each epoch; None leaves rows and groups in theirs.
        order: of the rows or groups in an epoch, from their number, the seed and the epoch.
        rank, world: which share of each batch is read. A rank with nothing left reads one row, of which nothing counts.
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
        # The places of groups, (batch_size,), become those of their rows, (B,).
        return self.rows.read(mine if self.groups is None else np.concatenate([self.groups[i] for i in mine]))

    def _num_shared(self) -> int:
        return len(self.rows if self.groups is None else self.groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": -1, "_order": np.arange(0)}


class FromNext(Sampler[int]):
    """The numbers of an epoch's worth of batches, from the next one on.

    Args:
        next_number: how many batches are done; asked at the start of each pass.
        num_batches: how many numbers to give.
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

    Lightning calls `iter()` before it has read from a checkpoint how many batches are done. The two methods tell
    it that this loader resumes; there is nothing to save, for the place follows from that number.
    """

    def __iter__(self) -> Iterator[BatchT]:  # type: ignore[override]
        yield from super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def group_by_length(lengths: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
    """Rows of each group, in order within a group; the groups are in the order of their first rows.

    Rows of one length are mixed before they are cut into groups, so that a file sorted by class gives mixed groups.

    Raises:
        ValueError: a row alone has more than `max_tokens`.
    """
    if len(lengths) and lengths.max() > max_tokens:
        raise ValueError(
            f"data.max_tokens {max_tokens} is less than the {lengths.max()} tokens of the longest row; give more"
        )
    mixed = epoch_order(len(lengths), 0, 0)
    longest_first = mixed[np.argsort(-lengths[mixed], kind="stable")]  # (N,)
    groups = []  # (B,) each: as many of the longest that are left as fit, padded to the first of them
    while len(longest_first):
        size = max_tokens // max(int(lengths[longest_first[0]]), 1)
        groups.append(np.sort(longest_first[:size]))
        longest_first = longest_first[size:]
    return sorted(groups, key=lambda group: int(group[0]))


class Groups:
    """Groups of each split, made again when `max_tokens` changes."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, list[NDArray[np.int64]]]] = {}

    def of(self, split: str, lengths: NDArray[np.int64], max_tokens: int) -> list[NDArray[np.int64]]:
        """Groups that `group_by_length` makes of the split with rows of these lengths."""
        if split not in self._made or self._made[split][0] != max_tokens:
            self._made[split] = max_tokens, group_by_length(lengths, max_tokens)
        return self._made[split][1]


def pad(rows: Sequence[NDArray[Any]], value: float) -> Tensor:
    """Rows (T,) or (T, F) padded at their ends with `value` to the longest of them: (B, T) or (B, T, F), int64 for
    integers and float32 for other numbers."""
    dtype = np.int64 if rows[0].dtype.kind == "i" else np.float32
    padded = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), value, dtype=dtype)
    for filled, row in zip(padded, rows, strict=True):
        filled[: len(row)] = row
    return torch.from_numpy(padded)


def pad_mask(rows: Sequence[NDArray[Any]]) -> Tensor:
    """(B, T) bool, True = a real token of the rows that `pad` pads."""
    lengths = np.array([len(row) for row in rows])
    return torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
