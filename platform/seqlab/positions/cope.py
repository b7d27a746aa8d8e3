"""Contextual position encoding (Golovneva et al. 2024).

B batch, T query length, S key length, H heads, K head_dim, P positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.nn.heads import repeat_heads
from seqlab.nn.numerics import running_sum
from seqlab.positions.base import PositionalEncoding


class CoPE(PositionalEncoding):
    """Positions that count the tokens relevant to the query. The position of a key is the sum of the gates
    sigmoid(q k) over the keys from it to the query (equations 3 and 4). The product of q and that position's embedding,
    interpolated between the two nearest whole positions, is added to the score (equations 5 and 6).

    The embeddings are shared by the heads and by the layers, which must have the same head_dim. If attention looks
    ahead (in the paper it does not), a later key's position is the sum from the query to it. No limit: positions past
    the last embedding use the last one.

    Args:
        num_positions: number P of embeddings, for positions 0 to P - 1; at least 2.
    """

    acts_on = "attention scores"
    relative = True
    table: nn.Parameter | None

    def __init__(self, d_model: int, max_seq_len: int, *, num_positions: int = 64) -> None:
        super().__init__(d_model, max_seq_len)
        if num_positions < 2:
            raise ValueError(f"CoPE needs at least 2 positions, got {num_positions}")
        self.num_positions = num_positions
        self.register_parameter("table", None)

    def attach(self, num_heads: int, head_dim: int) -> None:
        if self.table is None:
            self.table = nn.Parameter(torch.zeros(self.num_positions, head_dim))
        elif self.table.shape[1] != head_dim:
            raise ValueError(
                "CoPE shares one table between all layers, which must have the same head_dim, got "
                f"{self.table.shape[1]} and {head_dim}"
            )

    def flops(self, new: int, seen: int, num_heads: int, head_dim: int) -> int:
        return 2 * new * num_heads * (seen + self.num_positions) * head_dim

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor:
        assert self.table is not None, "not attached"
        # (B, H, T, S)
        position = self._count(q, k, q_positions, k_positions, allowed).clamp(max=self.num_positions - 1)
        below = position.floor()
        above = (below + 1).clamp(max=self.num_positions - 1)
        scores = (q @ self.table.t()).to(position.dtype)  # (B, H, T, P)
        between = position - below
        at_below, at_above = scores.gather(-1, below.long()), scores.gather(-1, above.long())  # (B, H, T, S) each
        return (at_below + between * (at_above - at_below)).to(q.dtype)

    def _count(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor:
        """Sum of the gates from each key to the query, (B, H, T, S), in at least float32."""
        scores = q @ repeat_heads(k, q.shape[1]).transpose(-2, -1)  # (B, H, T, S)
        gates = scores.to(torch.promote_types(q.dtype, torch.float32)).sigmoid().masked_fill(~allowed, 0.0)
        distance = q_positions[:, None, :, None] - k_positions[:, None, None, :]  # (B or 1, 1, T, S)
        up_to_query = running_sum(gates.masked_fill(distance < 0, 0.0).flip(-1), -1).flip(-1)
        from_query = running_sum(gates.masked_fill(distance > 0, 0.0), -1)
        return torch.where(distance < 0, from_query, up_to_query)
