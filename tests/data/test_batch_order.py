"""The order of the batches: pure, complete, the same in every process."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from seqlab.batch import IGNORE
from seqlab_data.batch_order import Batches, FromNext, batch_indices, epoch_order
from seqlab_data.text_counts import TextCounts
from seqlab_data.token_cache import TokenFile
from seqlab_data.windows import Windows


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
    """Where each of 5 windows stands over 4,000 epochs: 800 times at each place, give or take 5 standard deviations."""
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


def make_batches(folder: Path, num_windows: int, **options: int) -> Batches:
    """Windows of two tokens; window i reads (2i, 2i + 1)."""
    path = folder / "stream.bin"
    np.arange(2 * num_windows + 1).astype("<u2").tofile(path)
    file = TokenFile("train", str(path), "<u2", 2 * num_windows + 1, 0, "")
    return Batches(Windows(file, 2, TextCounts([b"x"] * (2 * num_windows + 1))), **options)  # type: ignore[arg-type]


def windows_of(batches: Batches, number: int) -> list[int]:
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
