"""The adding problem: sums by hand, marks in both halves, the same examples for everyone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from seqlab_data import AddingDataModule
from seqlab_data.batches import Batches


def test_the_target_is_the_sum_of_the_two_marked_numbers() -> None:
    data = AddingDataModule(train_lengths=(5, 30), num_train=300)
    inputs, pad_mask, targets, _ = data.examples["train"].read(np.arange(300))
    assert inputs.shape == (300, 30, 2) and inputs[..., 0].min() >= 0 and inputs[..., 0].max() < 1
    lengths, places = pad_mask.sum(dim=1), set()
    assert lengths.min() == 5 and lengths.max() == 30
    for row in range(300):
        length = int(lengths[row])
        first, second = inputs[row, :, 1].nonzero().flatten().tolist()
        assert first < length // 2 <= second < length
        assert targets[row] == inputs[row, first, 0] + inputs[row, second, 0]
        assert not inputs[row, length:].any()
        places.add((first, second))
    assert len(places) > 100
    assert float((targets - 1).square().mean()) == pytest.approx(1 / 6, abs=0.03)


def test_splits_differ_and_a_seed_makes_the_same_examples() -> None:
    def read(split: str, seed: int) -> torch.Tensor:
        return AddingDataModule(seed=seed, test_lengths=(300, 300)).examples[split].read(np.arange(4)).inputs

    made = np.ascontiguousarray(read("train", 3).numpy(), dtype="<f4")
    assert hashlib.sha256(made.tobytes()).hexdigest().startswith("dc5e48afae687e91")
    assert torch.equal(read("train", 3), read("train", 3))
    assert not torch.equal(read("train", 3), read("val", 3)) and not torch.equal(read("train", 3), read("train", 4))
    assert read("test", 3).shape == (4, 300, 2)
    lengths = {split: examples.lengths for split, examples in AddingDataModule().examples.items()}
    assert lengths["test"][0] > lengths["train"][1] == lengths["val"][1]


def test_with_no_example_left_the_target_counts_for_nothing() -> None:
    data = AddingDataModule(num_train=1)
    batch = Batches(data.rows("train"), rank=1, world=2)[0]
    assert batch.targets.isnan().all() and batch.rows.tolist() == [-1]


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"data.train_lengths must be .* from 2 on, got \(1, 4\)"):
        AddingDataModule(train_lengths=(1, 4))
