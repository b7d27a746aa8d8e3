"""This process's shard of the data. Tensor-parallel ranks of one model replica read the same shard."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor

ValueT = TypeVar("ValueT")


class DataParallel(NamedTuple):
    """Place of this process among the data-parallel ranks.

    Attributes:
        rank, size: data-parallel rank and world size. Random numbers, data shards and counters depend on these, never
            on the global rank.
        group: process group of the data-parallel ranks; None = all processes.
    """

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None

    def sum(self, *numbers: Tensor) -> tuple[Tensor, ...]:
        """Sums scalars () over the ranks. Every rank must call it."""
        if self.size == 1:
            return numbers
        sums = torch.stack([number.double() for number in numbers])  # holds every count exactly
        dist.all_reduce(sums, group=self.group)
        return tuple(total.to(number.dtype) for total, number in zip(sums, numbers, strict=True))

    def gather(self, mine: ValueT) -> list[ValueT]:
        """Gathers each rank's value, in rank order. Every rank must call it."""
        if self.size == 1:
            return [mine]
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, mine, group=self.group)
        return gathered


def data_parallel(trainer: L.Trainer) -> DataParallel:
    """Data-parallel place of this process, once the trainer has set up its processes."""
    share = trainer.distributed_sampler_kwargs
    if share is None:
        return DataParallel()
    strategy = trainer.strategy
    mesh = strategy.device_mesh["data_parallel"] if isinstance(strategy, ModelParallelStrategy) else None
    return DataParallel(share["rank"], share["num_replicas"], None if mesh is None else mesh.get_group())


def of_all_ranks(mine: ValueT) -> list[ValueT]:
    """Gathers each process's value, in rank order. Every process must call it."""
    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    return DataParallel(size=size).gather(mine)
