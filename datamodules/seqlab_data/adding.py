"""The adding problem: find two numbers in a long sequence and add them.

B batch, T longest sequence of the batch.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.batch import LabelledBatch
from seqlab_data.base import SequenceDataModule, check_at_least
from seqlab_data.batch_order import Batches
from seqlab_data.synthetic.base import Draw
from seqlab_data.synthetic.data import SPLITS, check_lengths


class Sums:
    """The examples of a split, made from (seed, split, index).

    Args:
        lengths: the least and the greatest length; each is as likely.
    """

    def __init__(self, lengths: tuple[int, int], count: int, *words: int) -> None:
        self.lengths = lengths
        self.count = count
        self.words = words

    def __len__(self) -> int:
        return self.count

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        """The examples with these indices, (B,). With none, one example whose target is not a number."""
        least, most = self.lengths
        found = []
        for index in indices.tolist() or [0]:
            draw = Draw(*self.words, index)
            length = least + draw.integer(most - least + 1)
            values, marks = draw.uniform(length), np.zeros(length)
            marks[[draw.integer(length // 2), length // 2 + draw.integer(length - length // 2)]] = 1
            found.append((values, marks))
        inputs = torch.zeros(len(found), max(len(values) for values, _ in found), 2)
        pad_mask = torch.zeros(inputs.shape[:2], dtype=torch.bool)
        for row, (values, marks) in enumerate(found):
            inputs[row, : len(values)] = torch.from_numpy(np.stack((values, marks), axis=-1))
            pad_mask[row, : len(values)] = True
        targets = (inputs[..., 0] * inputs[..., 1]).sum(dim=1)
        return LabelledBatch(inputs, pad_mask, targets if len(indices) else targets.fill_(torch.nan))


class AddingDataModule(SequenceDataModule[LabelledBatch]):
    """Sequences of (a number from 0 to 1, a mark); one number of the first half and one of the second are marked, and
    the target is their sum (Hochreiter & Schmidhuber 1997, section 5.4; as in Bai et al. 2018, section 4). To say 1
    always has a mean squared error of 1/6.

    Args:
        train_lengths: the least and the greatest length of train and val, at least 2.
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
    num_features = 2

    def __init__(
        self,
        *,
        train_lengths: tuple[int, int] = (200, 200),
        test_lengths: tuple[int, int] = (200, 200),
        num_train: int = 50_000,
        num_eval: int = 1_000,
        batch_size: int = 32,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(seed=seed, num_workers=num_workers)
        check_at_least(1, num_train=num_train, num_eval=num_eval, batch_size=batch_size)
        check_lengths(2, train_lengths=train_lengths, test_lengths=test_lengths)
        self.batch_size = batch_size
        lengths = {"train": train_lengths, "val": train_lengths, "test": test_lengths}
        counts = {"train": num_train, "val": num_eval, "test": num_eval}
        self.examples = {
            split: Sums((lengths[split][0], lengths[split][1]), counts[split], seed, number)
            for number, split in enumerate(SPLITS)
        }

    @property
    def seq_len(self) -> int:
        """The longest sequence that a model is given, in the test split or before."""
        return max(examples.lengths[1] for examples in self.examples.values())

    def describe(self) -> dict[str, Any]:
        return {
            "name": "adding",
            "source": "synthetic",
            "digest": sha256(repr(self._identity()).encode()).hexdigest(),
            "splits": {name: {"examples": len(examples)} for name, examples in self.examples.items()},
        }

    def _batches(self, split: str, *, shuffle: bool = False) -> Batches[LabelledBatch]:
        rank, world = self._rank_and_world()
        seed = self.seed if shuffle else None
        return Batches(self.examples[split], self.batch_size, seed=seed, rank=rank, world=world)

    def _identity(self) -> dict[str, int | str]:
        lengths = {f"{name} examples": f"{e.count} of {e.lengths}" for name, e in self.examples.items()}
        return {"task": "adding", **lengths, "batch_size": self.batch_size, "seed": self.seed}
