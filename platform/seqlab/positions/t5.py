"""Learned biases over bucketed distances (Raffel et al. 2020, "T5").

B batch, T query length, S key length, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding


class T5Bias(PositionalEncoding):
    """Adds to each score a learned bias that depends on the head and on the bucket of k - q (section 2.1).

    Half of the buckets hold one distance each; the others widen logarithmically up to `max_distance`, and larger
    distances share the last bucket. One table serves all layers, as in T5, so every mixer must have the same number of
    heads. T5 itself does not scale its scores (`Attention(scale=1.0)`). No limit.

    Args:
        num_buckets: number of buckets per head.
        max_distance: distance in tokens at which the last bucket begins.
        bidirectional: whether half of the buckets are for keys after the query; otherwise those count as distance 0.
    """

    acts_on = "attention scores"
    relative = True
    table: nn.Parameter | None
    buckets: Tensor

    def __init__(
        self,
        d_model: int,
        max_seq_len: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(d_model, max_seq_len)
        one_way = num_buckets // 2 if bidirectional else num_buckets
        if one_way < 2 or one_way // 2 >= max_distance:
            raise ValueError(
                "T5Bias needs at least 2 buckets per direction and a max_distance above half of them, got num_buckets "
                f"{num_buckets} and max_distance {max_distance}, bidirectional {bidirectional}"
            )
        self.d_model = d_model
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        buckets = torch.tensor([bucket(distance, one_way, max_distance) for distance in range(max_distance + 1)])
        self.register_buffer("buckets", buckets, persistent=False)
        self.register_parameter("table", None)

    def attach(self, num_heads: int, head_dim: int) -> None:
        if self.table is None:
            table = nn.init.normal_(torch.empty(self.num_buckets, num_heads), std=self.d_model**-0.5)
            self.table = nn.Parameter(table)
        elif self.table.shape[1] != num_heads:
            raise ValueError(
                "T5Bias shares one table between all layers, which must have the same num_heads, got "
                f"{self.table.shape[1]} and {num_heads}"
            )

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor:
        assert self.table is not None, "not attached"
        offset = k_positions[:, None, :] - q_positions[:, :, None]  # (B or 1, T, S)
        distance = offset.abs() if self.bidirectional else (-offset).clamp(min=0)
        index = self.buckets[distance.clamp(max=self.max_distance)]  # (B or 1, T, S)
        if self.bidirectional:
            index = index + (offset > 0) * (self.num_buckets // 2)
        return self.table[index].permute(0, 3, 1, 2).to(q.dtype)  # (B or 1, T, S, H) to (B or 1, H, T, S)


def bucket(distance: int, num_buckets: int, max_distance: int) -> int:
    """e + floor(log(distance / e) / log(max_distance / e) * (num_buckets - e)), at most the last; below e = half of
    the buckets, the distance itself.

    Computed in integers, since a logarithm at run time would round differently in different runtimes.
    """
    exact = num_buckets // 2
    if distance < exact:
        return distance
    wider, found = num_buckets - exact, 0
    # log(a) / log(b) * n >= m where a^n >= b^m.
    while found + 1 < wider and distance**wider * exact ** (found + 1) >= max_distance ** (found + 1) * exact**wider:
        found += 1
    return exact + found
