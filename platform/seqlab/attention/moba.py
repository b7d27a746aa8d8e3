"""Mixture of block attention: each query attends to the blocks of keys that fit it best (Lu et al. 2025).

B batch, T query length, S key length, H heads, N blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.attention.cache import Keys
from seqlab.attention.parts import TIE, AttentionPart


class MoBA(AttentionPart):
    """Attention to the blocks of keys with the highest mean score.

    Lu et al. 2025, "MoBA", equations 5 and 6: a query attends to its own block and to the k - 1 earlier blocks with
    the highest mean score. Its score for a block is that for the mean of its keys, which is the mean of its scores.
    Blocks that tie with the last one chosen, up to rounding, are kept.

    This is the reference form: all scores are computed, and those of other blocks are masked.

    Args:
        block: number of keys per block.
        k: number of blocks per query, its own included; at least 1.

    Raises:
        ValueError: `block` or k is below 1.
    """

    sees_scores = True

    def __init__(self, d_model: int, num_heads: int, head_dim: int, *, block: int = 16, k: int = 3) -> None:
        super().__init__(d_model, num_heads, head_dim)
        if block < 1 or k < 1:
            raise ValueError(f"block and k of MoBA must be at least 1, got {block} and {k}")
        self.block, self.k = block, k

    def _blocks(self, seen: int) -> int:
        return seen // self.block + 2  # never 1, which a graph of any length could not tell from a broadcast

    def flops(self, new: int, seen: int, num_heads: int) -> int:
        return 2 * new * seen * self._blocks(seen) * (2 * num_heads + 1)  # means, counts, and what is kept

    def scores(self, scores: Tensor, keys: Keys, allowed: Tensor) -> Tensor:
        own = (keys.q_positions // self.block).unsqueeze(-1)  # (B or 1, T, 1)
        of_keys = (keys.k_positions // self.block).unsqueeze(-1)  # (B or 1, S, 1)
        blocks = torch.arange(self._blocks(scores.shape[-1]), device=scores.device)  # (N,)
        member = (of_keys == blocks).to(scores.dtype).unsqueeze(1)  # (B or 1, 1, S, N)
        counted = allowed.to(scores.dtype) @ member  # (B or 1, 1, T, N)
        mean = scores.masked_fill(~allowed, 0.0) @ member / counted.clamp(min=1.0)  # (B, H, T, N)
        earlier = ((blocks < own).unsqueeze(1) & (counted > 0)).expand_as(mean)  # (B, H, T, N)
        chosen = (blocks == own).unsqueeze(1).expand_as(mean)  # (B, H, T, N)
        if self.k > 1:
            ranked = mean.masked_fill(~earlier, -torch.inf)
            # Padded by k columns, so that a query with fewer blocks has a k-th score.
            padded = torch.cat((ranked, ranked.new_full((*ranked.shape[:-1], self.k), -torch.inf)), dim=-1)
            least = padded.topk(self.k - 1, dim=-1).values[..., -1:]  # (B, H, T, 1)
            largest = mean.masked_fill(~earlier, 0.0).abs().amax(dim=-1, keepdim=True)  # (B, H, T, 1)
            chosen = chosen | (earlier & (ranked >= least - TIE * torch.finfo(scores.dtype).eps * largest))
        kept = (chosen.to(scores.dtype) @ member.mT) > 0  # (B, H, T, S)
        return scores.masked_fill(~kept, -torch.inf)
