"""Batches: their order pure, complete and the same in every process; of similar length and small enough."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from data.helpers import refused
from seqlab.batch import IGNORE, LabelledBatch
from seqlab_data.batches import Batches, epoch_order, group_by_length
from seqlab_data.token_cache import TokenFile
from seqlab_data.windows import TextCounts, Windows


def test_the_order_is_frozen() -> None:
    """A stored value: were it to change, with NumPy or with us, no run could be resumed exactly."""
    assert epoch_order(10, 0, 0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_an_order_is_a_permutation_of_its_own() -> None:
    orders = [epoch_order(1000, seed, epoch) for seed in range(3) for epoch in range(3)]
    assert all(sorted(order.tolist()) == list(range(1000)) for order in orders)
    assert len({tuple(order) for order in orders}) == 9
    assert epoch_order(1000, None, 5).tolist() == list(range(1000))


class Numbers:
    """Rows that are their own indices, with one target each."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        rows = torch.tensor(indices)
        return LabelledBatch(rows, rows >= 0, rows.clone(), rows)


def random_lengths(size: int) -> NDArray[np.int64]:
    return np.random.default_rng(size).integers(1, 31, size)


@given(rows=st.lists(st.integers(1, 30), min_size=1, max_size=300), max_tokens=st.integers(30, 200) | st.just(10**6))
def test_groups_hold_every_row_once_of_similar_length_and_are_full(rows: list[int], max_tokens: int) -> None:
    lengths = np.array(rows)
    groups = group_by_length(lengths, max_tokens)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(rows)))
    assert all(len(group) * lengths[group].max() <= max_tokens for group in groups)
    assert max_tokens < 10**6 or len(groups) == 1
    by_length = sorted(groups, key=lambda group: (lengths[group].max(), lengths[group].min()))
    assert all(lengths[shorter].max() <= lengths[longer].min() for shorter, longer in pairwise(by_length))
    # Only the group of the shortest rows may have room for one more of its longest.
    assert all((len(group) + 1) * lengths[group].max() > max_tokens for group in by_length[1:])


def test_groups_by_hand() -> None:
    # From the longest on: 5 and 5 are two of 10; 4 and 3 as well; 2 and 1 are left.
    groups = group_by_length(np.array([2, 5, 5, 1, 4, 3]), 10)
    assert [group.tolist() for group in groups] == [[0, 3], [1, 2], [4, 5]]
    with refused(r"max_tokens 10 is less than the 11 tokens of the longest row"):
        group_by_length(np.array([3, 11]), 10)


def test_rows_of_one_length_are_mixed() -> None:
    """A file sorted by class must not give batches of one class each."""
    groups = group_by_length(np.full(1000, 4), 400)
    assert len(groups) == 10
    assert all(0.3 < (group < 500).mean() < 0.7 for group in groups)


def make(size: int, grouped: bool, **options: Any) -> Batches[LabelledBatch]:
    more: dict[str, Any] = {"groups": group_by_length(random_lengths(size), 60)} if grouped else {"batch_size": 3}
    return Batches(Numbers(size), **more, **options)


def rows_of(batches: Batches[LabelledBatch], epoch: int) -> list[tuple[int, ...]]:
    """Rows of each batch of an epoch that count."""
    found = [batches[epoch * len(batches) + i] for i in range(len(batches))]
    for batch in found:
        assert batch.rows is not None and torch.equal(batch.targets, batch.rows.where(batch.rows >= 0, IGNORE))
        assert batch.rows.tolist() == [-1] or (batch.rows >= 0).all(), "a rank with nothing left has one row"
    return [tuple(row for row in batch.targets.tolist() if row != IGNORE) for batch in found]


@pytest.mark.parametrize("grouped", [False, True])
@given(size=st.integers(1, 101), world=st.integers(1, 4), seed=st.none() | st.integers(0, 5))
def test_the_ranks_see_each_row_once_an_epoch(grouped: bool, size: int, world: int, seed: int | None) -> None:
    ranks = [make(size, grouped, seed=seed, rank=rank, world=world) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    for epoch in range(3):
        steps = [*zip(*(rows_of(batches, epoch) for batches in ranks), strict=True)]
        seen = [row for step in steps for rows in step for row in rows]
        assert sorted(seen) == list(range(size))
        for step in () if grouped else steps:
            sizes = [*map(len, step)]
            assert max(sizes) - min(sizes) <= 1 and (step is steps[-1] or sizes == [3] * world)
        assert grouped or seen == epoch_order(size, seed, epoch).tolist()


def test_each_epoch_has_the_same_batches_in_an_order_of_its_own() -> None:
    batches, other, unshuffled = (make(200, True, seed=seed) for seed in (0, 1, None))
    first, second, others = rows_of(batches, 0), rows_of(batches, 1), rows_of(other, 0)
    assert first != second and first != others
    assert sorted(first) == sorted(second) == sorted(others)
    for fresh in (batches, pickle.loads(pickle.dumps(batches))):
        assert rows_of(fresh, 0) == first, "a batch depends on its number alone"
    firsts = [rows[0] for rows in rows_of(unshuffled, 0)]
    assert firsts == sorted(firsts) == [rows[0] for rows in rows_of(unshuffled, 1)]


def test_a_batch_of_windows_that_counts_for_nothing(tmp_path: Path) -> None:
    np.arange(15).astype("<u2").tofile(path := tmp_path / "stream.bin")
    windows = Windows(TokenFile("train", str(path), "<u2", 15, 0, ""), 2, TextCounts([b"x"] * 15))
    last = [Batches(windows, batch_size=2, seed=0, rank=rank, world=3)[1] for rank in range(3)]
    kept = [int((batch.targets != IGNORE).all(dim=1).sum()) for batch in last]
    assert kept == [int(batch.num_chars.sum()) // 2 for batch in last] == [1, 0, 0]
    assert [batch.tokens.shape for batch in last] == [(1, 2)] * 3
