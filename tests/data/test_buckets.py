"""Batches of similar length: complete, small enough, fixed, and in an order that is a pure function."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seqlab_data.batch_order import Batches
from seqlab_data.buckets import Buckets, group_by_length, pad, pad_mask


class Numbers:
    """Rows that are their own indices."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, indices: NDArray[np.int64], /) -> list[int]:
        return indices.tolist()


def random_lengths(size: int, longest: int = 30) -> NDArray[np.int64]:
    return np.random.default_rng(size).integers(1, longest + 1, size)


@pytest.mark.parametrize("size", [1, 2, 17, 500])
@pytest.mark.parametrize("max_tokens", [30, 31, 100, 10**6])
def test_groups_hold_every_row_once_within_the_limit(size: int, max_tokens: int) -> None:
    lengths = random_lengths(size)
    groups = group_by_length(lengths, max_tokens)
    assert sorted(np.concatenate(groups).tolist()) == list(range(size))
    assert all(len(group) * lengths[group].max() <= max_tokens for group in groups)
    assert max_tokens < 10**6 or len(groups) == 1


def test_groups_are_of_similar_length_and_full() -> None:
    lengths = random_lengths(500)
    groups = group_by_length(lengths, 120)
    by_length = sorted(groups, key=lambda group: (lengths[group].max(), lengths[group].min()))
    for shorter, longer in pairwise(by_length):
        assert lengths[shorter].max() <= lengths[longer].min()
    # Only the group of the shortest rows may have room for one more of its longest.
    assert all((len(group) + 1) * lengths[group].max() > 120 for group in by_length[1:])
    padded = sum(len(group) * lengths[group].max() for group in groups)
    assert lengths.sum() <= padded < 1.1 * lengths.sum()


def test_groups_by_hand() -> None:
    # From the longest on: 5 and 5 are two of 10; 4 and 3 as well; 2 and 1 are left.
    groups = group_by_length(np.array([2, 5, 5, 1, 4, 3]), 10)
    assert [group.tolist() for group in groups] == [[0, 3], [1, 2], [4, 5]]


def test_rows_of_one_length_are_mixed() -> None:
    """A file sorted by class must not give batches of one class each."""
    groups = group_by_length(np.full(1000, 4), 400)
    assert len(groups) == 10
    for group in groups:
        assert 0.3 < (group < 500).mean() < 0.7


def test_a_row_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_tokens 10 is less than the 11 tokens of the longest row"):
        group_by_length(np.array([3, 11]), 10)


def make_batches(size: int, *, seed: int | None, world: int = 1) -> list[Batches[list[int]]]:
    buckets = Buckets(Numbers(size), random_lengths(size), 60)
    return [Batches(buckets, 1, seed=seed, rank=rank, world=world) for rank in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 40, 101])
def test_the_ranks_see_each_row_once_an_epoch_in_as_many_batches(world: int, size: int) -> None:
    ranks = make_batches(size, seed=5, world=world)
    [n] = {len(batches) for batches in ranks}
    for epoch in range(3):
        seen = [row for batches in ranks for number in range(epoch * n, (epoch + 1) * n) for row in batches[number]]
        assert sorted(seen) == list(range(size))


def test_each_epoch_has_the_same_batches_in_an_order_of_its_own() -> None:
    [batches], [other] = make_batches(200, seed=0), make_batches(200, seed=1)
    n = len(batches)
    first, second = ([tuple(batches[epoch * n + i]) for i in range(n)] for epoch in (0, 1))
    others = [tuple(other[i]) for i in range(n)]
    assert first != second and first != others
    assert sorted(first) == sorted(second) == sorted(others)
    assert [tuple(batches[i]) for i in range(n)] == first


def test_unshuffled_batches_keep_one_order_by_their_first_row() -> None:
    [batches] = make_batches(200, seed=None)
    n = len(batches)
    firsts = [batches[i][0] for i in range(n)]
    assert firsts == sorted(firsts)
    assert [batches[i] for i in range(n)] == [batches[i] for i in range(n, 2 * n)]


def test_padding_by_hand() -> None:
    rows = [np.array([5, 6, 7], dtype=np.int32), np.array([8], dtype=np.int32)]
    assert torch.equal(pad(rows, 0), torch.tensor([[5, 6, 7], [8, 0, 0]]))
    assert torch.equal(pad(rows, -100), torch.tensor([[5, 6, 7], [8, -100, -100]]))
    assert torch.equal(pad_mask(rows), torch.tensor([[True, True, True], [True, False, False]]))
