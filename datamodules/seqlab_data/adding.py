"""The adding problem: find two numbers in a long sequence and add them.

B batch, T longest sequence of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import LabelledBatch
from seqlab_data.batches import pad, pad_mask
from seqlab_data.generated import Generated, GeneratedDataModule


class Sums(Generated[LabelledBatch]):
    """Examples of the adding problem: marked numbers and their sums."""

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        found = []
        for draw, length in self.draws(indices):
            values, marks = draw.uniform(length), np.zeros(length)
            marks[[draw.integer(length // 2), length // 2 + draw.integer(length - length // 2)]] = 1
            found.append(np.stack((values, marks), axis=-1))  # (T, 2)
        inputs = pad(found, 0.0)  # (B, T, 2)
        targets = (inputs[..., 0] * inputs[..., 1]).sum(dim=1)
        return LabelledBatch(inputs, pad_mask(found), targets, torch.tensor(indices))


class AddingDataModule(GeneratedDataModule[LabelledBatch]):
    """Sequences of (a number from 0 to 1, a mark); one number of the first half and one of the second are marked, and
    the target is their sum (Hochreiter & Schmidhuber 1997, section 5.4; as in Bai et al. 2018, section 4). Always
    predicting 1 has a mean squared error of 1/6.

    Args:
        train_lengths: shortest and longest sequence of train and val, at least 2.
        test_lengths: shortest and longest sequence of test.
        num_train: number of training examples.
        batch_size: examples per batch on each rank.
        options: `num_eval`, number of examples in val and in test; `seed`; `num_workers`.

    Raises:
        ValueError: an argument is out of range.
    """

    name = task_name = "adding"
    num_features = 2
    shortest = 2

    def __init__(
        self,
        *,
        train_lengths: tuple[int, int] = (200, 200),
        test_lengths: tuple[int, int] = (400, 400),
        num_train: int = 50_000,
        batch_size: int = 32,
        **options: Any,
    ) -> None:
        super().__init__(
            train_lengths=train_lengths,
            test_lengths=test_lengths,
            num_train=num_train,
            batch_size=batch_size,
            **options,
        )

    @property
    def seq_len(self) -> int:
        """Maximum sequence length over all splits."""
        return max(examples.lengths[1] for examples in self.examples.values())

    def _generated(self, lengths: tuple[int, int], count: int, words: tuple[int, ...]) -> Sums:
        return Sums(lengths, count, words)
