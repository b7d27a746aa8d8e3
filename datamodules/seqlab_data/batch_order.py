"""The order of the batches: a pure function of seed, epoch, batch, rank and world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

BatchT = TypeVar("BatchT", covariant=True)


class Rows(Protocol[BatchT]):
    """What is read in batches: windows of a text, pairs, groups of pairs."""

    def __len__(self) -> int: ...

    def read(self, indices: NDArray[np.int64], /) -> BatchT:
        """The rows with these indices, (B,). With none, a batch of one row that counts for nothing."""


def epoch_order(num_rows: int, seed: int | None, epoch: int) -> NDArray[np.int64]:
    """(num_rows,) the order of the rows in an epoch: the ranks of random 64-bit keys.

    Only the bit generator is drawn from: unlike `Generator.permutation`, NumPy keeps its stream for ever.
    """
    if seed is None:
        return np.arange(num_rows)
    keys = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(num_rows)
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


def row_numbers(indices: NDArray[np.int64]) -> Tensor:
    """What a batch says of the rows (B,) that it reads: their indices; -1, (1,), where it reads none."""
    return torch.from_numpy(indices.copy()) if len(indices) else torch.tensor([-1])


class Batches(Dataset[BatchT], Generic[BatchT]):
    """Batch k of an endless sequence: batch k mod n of epoch k div n, where an epoch is n batches.

    Args:
        batch_size: rows a rank; a batch is `batch_size * world` rows over all ranks.
        seed: of the order in each epoch; None leaves the rows in theirs.
        rank, world: which share of each batch is read.
    """

    def __init__(
        self, rows: Rows[BatchT], batch_size: int, *, seed: int | None = None, rank: int = 0, world: int = 1
    ) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world = world
        self._epoch = -1
        self._order: NDArray[np.int64] = np.arange(0)

    def __len__(self) -> int:
        return -(-len(self.rows) // (self.batch_size * self.world))

    def __getitem__(self, number: int) -> BatchT:
        epoch, batch = divmod(number, len(self))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, epoch_order(len(self.rows), self.seed, epoch)
        return self.rows.read(
            batch_indices(self._order, batch, batch_size=self.batch_size, rank=self.rank, world=self.world)
        )

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
