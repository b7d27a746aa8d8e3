"""Metrics by length, since length is where models differ: from 1 to 8, 9 to 16, 17 to 32 and so on.

N values.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torchmetrics import Metric

BOUNDS = (8, 16, 32, 64, 128, 256, 512, 1024)
NAMES = ("1-8", *(f"{low + 1}-{high}" for low, high in pairwise(BOUNDS)), f"over {BOUNDS[-1]}")


def bucket(lengths: Tensor) -> Tensor:
    """Lengths (N,) from 1 on to places in `NAMES`, (N,)."""
    return torch.bucketize(lengths, torch.tensor(BOUNDS, device=lengths.device))


class MeanByLength(Metric):
    """The mean of the values of each bucket of lengths, by its name. Sums are float64 and are reduced over devices."""

    full_state_update = False
    sums: Tensor
    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("sums", "counts"):
            self.add_state(name, torch.zeros(len(NAMES), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor, lengths: Tensor) -> None:
        """values (N,), and the length that each is of, (N,) int64."""
        places = bucket(lengths)
        self.sums.index_add_(0, places, values.double())
        self.counts.index_add_(0, places, torch.ones_like(values, dtype=torch.float64))

    def compute(self) -> dict[str, Tensor]:
        """The buckets that have values."""
        means = self.sums / self.counts
        return {name: means[place] for place, name in enumerate(NAMES) if self.counts[place] > 0}
