"""Requirements on the order of any data module."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from seqlab.batch import IGNORE


def same(batch: Any, other: Any) -> bool:
    parts = zip(batch, other, strict=True)
    return all(one is two is None or torch.equal(one, two) for one, two in parts)


def check_order(make: Callable[..., Any], num_rows: int) -> None:
    """The order is the same for workers, goes on where it stopped, and is shared by four ranks in as many batches, over
    which each of `num_rows` rows of val counts once."""
    data = make()
    expected = list(data.train_dataloader())
    for other in (make(num_workers=1), pickle.loads(pickle.dumps(data))):
        assert all(map(same, other.train_dataloader(), expected))
    resumed = make()
    resumed.load_state_dict({**data.state_dict(), "batch": 2, "batches": 2})
    assert same(next(iter(resumed.train_dataloader())), expected[2])

    ranks = []
    for rank in range(4):
        part = make()
        part.trainer = SimpleNamespace(distributed_sampler_kwargs={"rank": rank, "num_replicas": 4})
        ranks.append(list(part.val_dataloader()))
    assert len({len(batches) for batches in ranks}) == 1
    batches = [batch for batches in ranks for batch in batches]
    for batch in batches:
        nothing = ((batch.targets == IGNORE) | batch.targets.isnan()).all()
        assert nothing == (batch.rows == -1).any() == (batch.rows.tolist() == [-1])
    assert sorted(row for batch in batches for row in batch.rows.tolist() if row != -1) == list(range(num_rows))
