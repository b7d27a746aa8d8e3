"""Examples of a synthetic task: a LightningDataModule that generates them on the fly.

B batch, T longest sequence of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, TokenBatch
from seqlab_data.batches import pad
from seqlab_data.generated import Generated, GeneratedDataModule
from seqlab_data.synthetic.base import PAD, SyntheticTask


class Examples(Generated[TokenBatch]):
    """The examples of a task."""

    def __init__(self, task: SyntheticTask, lengths: tuple[int, int], count: int, words: tuple[int, ...]) -> None:
        super().__init__(lengths, count, words)
        self.task = task

    def read(self, indices: NDArray[np.int64], /) -> TokenBatch:
        found = [self.task.example(draw, length) for draw, length in self.draws(indices)]
        tokens, targets = ([np.array(example[part]) for example in found] for part in (0, 1))
        padded = pad(targets, IGNORE)  # (B, T)
        return TokenBatch(pad(tokens, PAD), padded, (padded != IGNORE).sum(dim=1), rows=torch.tensor(indices))


class SyntheticDataModule(GeneratedDataModule[TokenBatch]):
    """Examples of a task, short ones for training and longer ones for testing. The same seed gives the same examples on
    any machine, with any number of workers. Bits per character counts each answer token as one character.

    Args:
        task: factory that builds the task.
        train_lengths: minimum and maximum length of train and val.
        test_lengths: minimum and maximum length of test.
        num_train: number of training examples.
        batch_size: examples per batch on each rank.
        options: `num_eval`, number of examples in val and in test; `seed`; `num_workers`.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        task: Callable[[], SyntheticTask],
        *,
        train_lengths: tuple[int, int] = (1, 40),
        test_lengths: tuple[int, int] = (41, 100),
        num_train: int = 100_000,
        batch_size: int = 64,
        **options: Any,
    ) -> None:
        self.task = task()
        self.name = type(self.task).__name__
        fixed = sorted(item for item in vars(self.task).items() if item[0] not in self.task.varied())
        settings = ", ".join(f"{name} {value}" for name, value in fixed)
        self.task_name = f"{self.name}({settings})"
        super().__init__(
            train_lengths=train_lengths,
            test_lengths=test_lengths,
            num_train=num_train,
            batch_size=batch_size,
            **options,
        )

    @property
    def vocab_size(self) -> int:
        return self.task.vocab_size

    @property
    def seq_len(self) -> int:
        """Maximum sequence length over all splits."""
        return max(self.task.longest(examples.lengths[1]) for examples in self.examples.values())

    def identity(self) -> dict[str, int | str]:
        return {**super().identity(), **self.task.varied()}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "vocab_size": self.vocab_size}

    def _generated(self, lengths: tuple[int, int], count: int, words: tuple[int, ...]) -> Examples:
        return Examples(self.task, lengths, count, words)
