"""Relative position representations (Shaw et al. 2018).

B batch, T query length, S key length, H heads, K head_dim, C clipping distance.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding


class Shaw(PositionalEncoding):
    """Adds to each key and value a learned vector for its distance k - q, clipped to -C..C (equations 3, 4).

    The vectors are shared by the heads (section 3.2) and by the layers, which must have the same head_dim. With value
    vectors the attention weights are materialised, and no fused kernel is used. No limit.

    Args:
        max_distance: clipping distance C in tokens; 16 in the paper, for translation.
        relative_values: whether values have such vectors too, as in the paper.
    """

    acts_on = "attention scores"
    relative = True
    key_table: nn.Parameter | None
    value_table: nn.Parameter | None

    def __init__(self, d_model: int, max_seq_len: int, *, max_distance: int = 16, relative_values: bool = True) -> None:
        super().__init__(d_model, max_seq_len)
        if max_distance < 1:
            raise ValueError(f"the max_distance of Shaw must be at least 1, got {max_distance}")
        self.max_distance = max_distance
        self.weighs_values = relative_values
        self.register_parameter("key_table", None)
        self.register_parameter("value_table", None)

    def attach(self, num_heads: int, head_dim: int) -> None:
        if self.key_table is None:
            shape = (2 * self.max_distance + 1, head_dim)
            self.key_table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))
            if self.weighs_values:
                self.value_table = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))
        elif self.key_table.shape[1] != head_dim:
            raise ValueError(
                "Shaw shares one table between all layers, which must have the same head_dim, got "
                f"{self.key_table.shape[1]} and {head_dim}"
            )

    def flops(self, new: int, seen: int, num_heads: int, head_dim: int) -> int:
        tables = 2 if self.weighs_values else 1
        return 2 * tables * new * num_heads * (2 * self.max_distance + 1) * head_dim

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor:
        assert self.key_table is not None, "not attached"
        scores = q @ self.key_table.t()  # (B, H, T, 2 C + 1)
        return scores.gather(-1, self._index(q, q_positions, k_positions))  # (B, H, T, S)

    def values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        if self.value_table is None:
            return None
        # Attention weights summed over the keys at each distance, (B, H, T, 2C + 1).
        summed = weights.new_zeros(*weights.shape[:3], 2 * self.max_distance + 1)
        summed = summed.scatter_add(-1, self._index(weights, q_positions, k_positions), weights)
        return summed @ self.value_table  # (B, H, T, K)

    def _index(self, like: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """Table row of each query-key pair, (B, H, T, S), expanded to the heads of `like` (B, H, T, ...)."""
        offset = k_positions[:, None, :] - q_positions[:, :, None]  # (B or 1, T, S)
        index = offset.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return index.unsqueeze(1).expand(*like.shape[:3], -1)  # (B, H, T, S)
