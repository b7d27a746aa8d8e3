"""Examples of a synthetic task: a LightningDataModule that makes them as they are read.

B batch, T longest sequence of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, TokenBatch
from seqlab_data.base import SequenceDataModule, check_at_least
from seqlab_data.batch_order import Batches
from seqlab_data.synthetic.base import PAD, Draw, SyntheticTask

SPLITS = ("train", "val", "test")


def check_lengths(shortest: int, **options: tuple[int, int]) -> None:
    """Refuses an option of `data` that is not a least and a greatest length from `shortest` on.

    Raises:
        ValueError: an option is none.
    """
    for name, (least, most) in options.items():
        if not shortest <= least <= most:
            raise ValueError(
                f"data.{name} must be a least and a greatest length from {shortest} on, got {(least, most)}"
            )


class Examples:
    """The examples of a split, made from (seed, split, index).

    Args:
        lengths: the least and the greatest length; each is as likely.
    """

    def __init__(self, task: SyntheticTask, lengths: tuple[int, int], count: int, *words: int) -> None:
        self.task = task
        self.lengths = lengths
        self.count = count
        self.words = words

    def __len__(self) -> int:
        return self.count

    def read(self, indices: NDArray[np.int64], /) -> TokenBatch:
        """The examples with these indices, (B,). With none, one example of which nothing counts."""
        least, most = self.lengths
        found = []
        for index in indices.tolist() or [0]:
            draw = Draw(*self.words, index)
            found.append(self.task.example(draw, least + draw.integer(most - least + 1)))
        longest = max(len(example.tokens) for example in found) - 1
        tokens = torch.full((len(found), longest), PAD)
        targets = torch.full((len(found), longest), IGNORE)
        for row, example in enumerate(found):
            read, predicted = torch.tensor(example.tokens[:-1]), torch.tensor(example.tokens[1:])
            tokens[row, : len(read)] = read
            targets[row, : len(read)] = predicted.where(torch.tensor(example.counted[1:]), IGNORE)
        if not len(indices):
            targets.fill_(IGNORE)
        return TokenBatch(tokens, targets, (targets != IGNORE).sum(dim=1))


class SyntheticDataModule(SequenceDataModule[TokenBatch]):
    """A task's examples, short ones to learn from and longer ones to test with. The same seed makes the same examples
    on any machine, with any number of workers. To bits per character an answer is as one character.

    Args:
        task: makes the task.
        train_lengths: the least and the greatest length of train and val.
        test_lengths: of test.
        num_train, num_eval: examples of train, and of val and test each.
        batch_size: examples a batch on each rank.
        seed: of the examples and of their order.
        num_workers: processes that load batches; 0 = the training process itself.

    Raises:
        ValueError: an argument is out of range.
    """

    in_evaluation = ("task",)
    between_epochs = ("batch_size",)

    def __init__(
        self,
        task: Callable[[], SyntheticTask],
        *,
        train_lengths: tuple[int, int] = (1, 40),
        test_lengths: tuple[int, int] = (41, 100),
        num_train: int = 100_000,
        num_eval: int = 1_000,
        batch_size: int = 64,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, num_workers=num_workers)
        check_at_least(1, num_train=num_train, num_eval=num_eval, batch_size=batch_size)
        check_lengths(1, train_lengths=train_lengths, test_lengths=test_lengths)
        self.task = task()
        self.batch_size = batch_size
        lengths = {"train": train_lengths, "val": train_lengths, "test": test_lengths}
        counts = {"train": num_train, "val": num_eval, "test": num_eval}
        self.examples = {
            split: Examples(self.task, (lengths[split][0], lengths[split][1]), counts[split], seed, number)
            for number, split in enumerate(SPLITS)
        }

    @property
    def vocab_size(self) -> int:
        return self.task.vocab_size

    @property
    def seq_len(self) -> int:
        """The longest sequence that a model is given, in the test split or before."""
        return max(self.task.longest(examples.lengths[1]) for examples in self.examples.values()) - 1

    def describe(self) -> dict[str, Any]:
        return {
            "name": type(self.task).__name__,
            "source": "synthetic",
            "digest": sha256(repr(self._identity()).encode()).hexdigest(),
            "splits": {name: {"examples": len(examples)} for name, examples in self.examples.items()},
            "vocab_size": self.vocab_size,
        }

    def _batches(self, split: str, *, shuffle: bool = False) -> Batches[TokenBatch]:
        rank, world = self._rank_and_world()
        seed = self.seed if shuffle else None
        return Batches(self.examples[split], self.batch_size, seed=seed, rank=rank, world=world)

    def _identity(self) -> dict[str, int | str]:
        options = ", ".join(f"{name} {value}" for name, value in sorted(vars(self.task).items()))
        lengths = {f"{name} examples": f"{e.count} of {e.lengths}" for name, e in self.examples.items()}
        task = f"{type(self.task).__name__}({options})"
        return {"task": task, **lengths, "batch_size": self.batch_size, "seed": self.seed}
