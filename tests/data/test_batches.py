"""Batches: their order pure, complete and the same in every process; of similar length and small enough."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seqlab.batch import IGNORE, LabelledBatch, TokenBatch
from seqlab_data.batches import Batches, FromNext, batch_indices, epoch_order, group_by_length, pad, pad_mask
from seqlab_data.token_cache import TokenFile
from seqlab_data.windows import TextCounts, Windows


def test_the_order_is_frozen() -> None:
    """A stored value: were it to change, with NumPy or with us, no run could be resumed exactly."""
    assert epoch_order(10, 0, 0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_an_order_is_a_permutation_of_its_own() -> None:
    orders = [epoch_order(1000, seed, epoch) for seed in range(3) for epoch in range(3)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(1000))
    assert len({tuple(order) for order in orders}) == 9
    assert epoch_order(1000, None, 5).tolist() == list(range(1000))


def test_an_order_has_no_preferred_place() -> None:
    """Counts the places of 5 windows over 4,000 epochs: 800 times at each, give or take 5 standard deviations."""
    orders = np.array([epoch_order(5, 1, epoch) for epoch in range(4000)])
    counts = np.array([[(orders[:, place] == window).sum() for place in range(5)] for window in range(5)])
    assert abs(counts - 800).max() < 5 * np.sqrt(4000 * 0.2 * 0.8)


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("num_windows", [1, 2, 3, 7, 12, 13, 24, 25])
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_the_ranks_see_each_window_once_and_share_evenly(world: int, num_windows: int, batch_size: int) -> None:
    order = epoch_order(num_windows, 3, 4)
    num_batches = -(-num_windows // (batch_size * world))
    seen: list[int] = []
    for batch in range(num_batches):
        shares = [batch_indices(order, batch, batch_size=batch_size, rank=r, world=world) for r in range(world)]
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        if batch < num_batches - 1:
            assert sizes == [batch_size] * world
        assert max(sizes) <= batch_size
        seen += np.concatenate(shares).tolist()
    assert seen == order.tolist()


def make_batches(folder: Path, num_windows: int, **options: Any) -> Batches[TokenBatch]:
    """Windows of two tokens; window i reads (2i, 2i + 1)."""
    path = folder / "stream.bin"
    np.arange(2 * num_windows + 1).astype("<u2").tofile(path)
    file = TokenFile("train", str(path), "<u2", 2 * num_windows + 1, 0, "")
    return Batches(Windows(file, 2, TextCounts([b"x"] * (2 * num_windows + 1))), **options)


def windows_of(batches: Batches[TokenBatch], number: int) -> list[int]:
    batch = batches[number]
    kept = (batch.targets != IGNORE).all(dim=1)
    assert (batch.num_chars == 2 * kept).all()
    return (batch.tokens[kept, 0] // 2).tolist()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_an_epoch_over_all_ranks_is_every_window_once(tmp_path: Path, world: int) -> None:
    ranks = [make_batches(tmp_path, 13, batch_size=3, seed=0, rank=rank, world=world) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    n = len(ranks[0])
    for epoch in range(2):
        numbers = range(epoch * n, (epoch + 1) * n)
        seen = [window for number in numbers for batches in ranks for window in windows_of(batches, number)]
        assert seen == epoch_order(13, 0, epoch).tolist()


def test_a_rank_with_nothing_left_gets_one_window_that_counts_for_nothing(tmp_path: Path) -> None:
    ranks = [make_batches(tmp_path, 7, batch_size=2, seed=0, rank=rank, world=3) for rank in range(3)]
    last = [batches[1] for batches in ranks]
    assert [int((batch.targets != IGNORE).any(dim=1).sum()) for batch in last] == [1, 0, 0]
    assert [batch.tokens.shape for batch in last] == [(1, 2)] * 3


def test_a_batch_depends_on_its_number_alone(tmp_path: Path) -> None:
    batches = make_batches(tmp_path, 13, batch_size=3, seed=0)
    in_order = [batches[number] for number in range(15)]
    for number in (14, 0, 7, 7, 3):
        for fresh in (batches, pickle.loads(pickle.dumps(batches)), make_batches(tmp_path, 13, batch_size=3, seed=0)):
            assert torch.equal(fresh[number].tokens, in_order[number].tokens)


def test_the_sampler_asks_at_each_pass_where_to_begin() -> None:
    done = iter([0, 5, 9])
    sampler = FromNext(lambda: next(done), 4)
    assert [list(sampler) for _ in range(3)] == [[0, 1, 2, 3], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert len(sampler) == 4


class Numbers:
    """Rows that are their own indices, with one target each."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, indices: NDArray[np.int64], /) -> LabelledBatch:
        rows = torch.tensor(indices)
        return LabelledBatch(rows, rows >= 0, rows.clone(), rows)


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


def make_groups(size: int, *, seed: int | None, world: int = 1) -> list[Batches[LabelledBatch]]:
    groups = group_by_length(random_lengths(size), 60)
    return [Batches(Numbers(size), groups=groups, seed=seed, rank=rank, world=world) for rank in range(world)]


def rows_of(batch: LabelledBatch) -> list[int]:
    """Rows of a batch that count."""
    assert batch.rows is not None and torch.equal(batch.targets, batch.rows.where(batch.rows >= 0, IGNORE))
    return [row for row in batch.rows.tolist() if row != -1]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 40, 101])
def test_the_ranks_see_each_row_once_an_epoch_in_as_many_batches(world: int, size: int) -> None:
    ranks = make_groups(size, seed=5, world=world)
    [n] = {len(batches) for batches in ranks}
    for epoch in range(3):
        seen = [
            row for batches in ranks for number in range(epoch * n, (epoch + 1) * n) for row in rows_of(batches[number])
        ]
        assert sorted(seen) == list(range(size))


def test_each_epoch_has_the_same_batches_in_an_order_of_its_own() -> None:
    [batches], [other] = make_groups(200, seed=0), make_groups(200, seed=1)
    n = len(batches)
    first, second = ([tuple(rows_of(batches[epoch * n + i])) for i in range(n)] for epoch in (0, 1))
    others = [tuple(rows_of(other[i])) for i in range(n)]
    assert first != second and first != others
    assert sorted(first) == sorted(second) == sorted(others)
    assert [tuple(rows_of(batches[i])) for i in range(n)] == first


def test_unshuffled_batches_keep_one_order_by_their_first_row() -> None:
    [batches] = make_groups(200, seed=None)
    n = len(batches)
    firsts = [rows_of(batches[i])[0] for i in range(n)]
    assert firsts == sorted(firsts)
    assert firsts == [rows_of(batches[i])[0] for i in range(n, 2 * n)]


def test_padding_by_hand() -> None:
    rows = [np.array([5, 6, 7], dtype=np.int32), np.array([8], dtype=np.int32)]
    assert torch.equal(pad(rows, 0), torch.tensor([[5, 6, 7], [8, 0, 0]]))
    assert torch.equal(pad(rows, -100), torch.tensor([[5, 6, 7], [8, -100, -100]]))
    assert torch.equal(pad_mask(rows), torch.tensor([[True, True, True], [True, False, False]]))
