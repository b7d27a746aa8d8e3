"""What the order of any data module of labelled sequences is held to."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from seqlab.batch import IGNORE


def check_order(make: Callable[..., Any], num_tested: int) -> None:
    """The order is the same for workers, goes on where it stopped, and is shared by four ranks, over which each of
    `num_tested` test sequences counts once."""
    data = make()
    expected = list(data.train_dataloader())
    for other in (make(num_workers=1), pickle.loads(pickle.dumps(data))):
        for batch, alone in zip(other.train_dataloader(), expected, strict=True):
            assert all(torch.equal(one, two) for one, two in zip(batch, alone, strict=True))
    resumed = make()
    resumed.load_state_dict({**data.state_dict(), "batch": 2, "batches": 2})
    assert torch.equal(next(iter(resumed.train_dataloader())).inputs, expected[2].inputs)

    ranks = []
    for rank in range(4):
        part = make()
        part.trainer = SimpleNamespace(distributed_sampler_kwargs={"rank": rank, "num_replicas": 4})
        ranks.append([batch.targets for batch in part.test_dataloader()])
    assert len({len(batches) for batches in ranks}) == 1
    targets = torch.cat([batch for batches in ranks for batch in batches])
    assert int((targets != IGNORE).sum()) == num_tested
