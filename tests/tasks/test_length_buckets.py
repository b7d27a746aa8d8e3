"""Metrics by length: every length in one bucket, means by hand, sums that add up over devices."""

from __future__ import annotations

import pytest
import torch

from seqlab.tasks.length_buckets import NAMES, MeanByLength, bucket


def test_every_length_is_in_the_bucket_that_names_it() -> None:
    for length in range(1, 1100):
        name = NAMES[int(bucket(torch.tensor([length])))]
        low, high = (1025, 10**9) if name == "over 1024" else map(int, name.split("-"))
        assert low <= length <= high


def test_means_by_hand_and_empty_buckets_are_left_out() -> None:
    metric = MeanByLength()
    metric.update(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([1, 8, 9]))
    metric.update(torch.tensor([True, False]), torch.tensor([3, 2000]))
    found = {name: value.item() for name, value in metric.compute().items()}
    assert found == pytest.approx({"1-8": 2 / 3, "9-16": 5.0, "over 1024": 0.0})
    metric.reset()
    metric.update(torch.tensor([3.0]), torch.tensor([16]))
    assert metric.compute() == {"9-16": 3.0}


def test_sums_are_those_of_all_devices() -> None:
    one, other = MeanByLength(), MeanByLength()
    one.update(torch.tensor([1.0, 2.0]), torch.tensor([5, 20]))
    other.update(torch.tensor([4.0]), torch.tensor([6]))
    one.merge_state(other)
    assert {name: value.item() for name, value in one.compute().items()} == {"1-8": 2.5, "17-32": 2.0}
