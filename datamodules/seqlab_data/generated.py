"""Examples generated on the fly from (seed, split, index)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from seqlab_data.base import SequenceDataModule, check_at_least
from seqlab_data.batches import BatchT
from seqlab_data.splits import SPLITS


class Draw:
    """Random numbers determined by (seed, split, index), the same on every machine.

    Only the bit generator is used: NumPy guarantees a stable stream for it.
    """

    def __init__(self, *words: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(words))

    def integer(self, bound: int) -> int:
        """A random integer in 0, ..., bound - 1."""
        return int(self._bits.random_raw()) % bound

    def integers(self, bound: int, count: int) -> list[int]:
        return [self.integer(bound) for _ in range(count)]

    def uniform(self, count: int) -> NDArray[np.float64]:
        """`count` numbers in [0, 1)."""
        numbers: NDArray[np.float64] = (self._bits.random_raw(count) >> np.uint64(11)) * np.float64(2.0**-53)
        return numbers

    def sample(self, bound: int, count: int) -> list[int]:
        """`count` distinct integers from 0, ..., bound - 1, in random order."""
        keys = self._bits.random_raw(bound)
        order: list[int] = np.argsort(keys, kind="stable")[:count].tolist()
        return order


class Generated(ABC, Generic[BatchT]):
    """The examples of a split.

    Args:
        lengths: minimum and maximum length, both included; all lengths are equally likely.
        words: integers that determine the examples, together with the index of each example.
    """

    def __init__(self, lengths: tuple[int, int], count: int, words: tuple[int, ...]) -> None:
        self.lengths = lengths
        self.count = count
        self.words = words

    def __len__(self) -> int:
        return self.count

    @abstractmethod
    def read(self, indices: NDArray[np.int64], /) -> BatchT:
        """The examples with these indices, (B,)."""

    def draws(self, indices: NDArray[np.int64]) -> Iterator[tuple[Draw, int]]:
        """Random number generator and length of each example."""
        least, most = self.lengths
        for index in indices.tolist():
            draw = Draw(*self.words, index)
            yield draw, least + draw.integer(most - least + 1)


class GeneratedDataModule(SequenceDataModule[BatchT], ABC):
    """Data module of generated examples. A subclass names the task and generates the examples of a split.

    Args:
        train_lengths: minimum and maximum length of train and val.
        test_lengths: minimum and maximum length of test.
        num_train, num_eval: number of examples in train, and in each of val and test.
        batch_size: examples per batch on each rank.
        seed: random seed for the examples and for their order.
        num_workers: number of data-loading processes; 0 = load in the training process.

    Raises:
        ValueError: an argument is out of range.
    """

    in_evaluation = ("task",)
    between_epochs = ("batch_size",)
    name: str
    task_name: str
    shortest = 1
    """Minimum length that the task supports."""

    def __init__(
        self,
        *,
        train_lengths: tuple[int, int],
        test_lengths: tuple[int, int],
        num_train: int,
        num_eval: int = 1_000,
        batch_size: int,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, num_workers=num_workers, batch_size=batch_size)
        check_at_least(1, num_train=num_train, num_eval=num_eval)
        for name, (least, most) in (("train_lengths", train_lengths), ("test_lengths", test_lengths)):
            if not self.shortest <= least <= most:
                raise ValueError(
                    f"data.{name} must be a minimum and a maximum length of at least {self.shortest}, got "
                    f"{(least, most)}"
                )
        lengths = {"train": train_lengths, "val": train_lengths, "test": test_lengths}
        counts = {"train": num_train, "val": num_eval, "test": num_eval}
        self.examples = {
            split: self._generated((lengths[split][0], lengths[split][1]), counts[split], (seed, number))
            for number, split in enumerate(SPLITS)
        }

    @abstractmethod
    def _generated(self, lengths: tuple[int, int], count: int, words: tuple[int, ...]) -> Generated[BatchT]:
        """The examples of a split."""

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "source": "synthetic",
            "digest": sha256(repr(self.identity()).encode()).hexdigest(),
            "splits": {name: {"examples": len(examples)} for name, examples in self.examples.items()},
        }

    def rows(self, split: str) -> Generated[BatchT]:
        return self.examples[split]

    def identity(self) -> dict[str, int | str]:
        lengths = {f"{name} examples": f"{e.count} of {e.lengths}" for name, e in self.examples.items()}
        return {"task": self.task_name, **lengths, "batch_size": self.batch_size, "seed": self.seed}
