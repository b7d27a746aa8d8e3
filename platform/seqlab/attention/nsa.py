"""Native sparse attention: compressed blocks, selected blocks, and a sliding window (Yuan et al. 2025).

B batch, T query length, S key length, D d_model, H heads, G key-value heads, N blocks.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from seqlab.attention.cache import Keys
from seqlab.attention.parts import TIE
from seqlab.attention.softmax import Attention
from seqlab.mixer import Cuts, State
from seqlab.nn.heads import repeat_heads


class NativeSparseAttention(Attention):
    """Gated sum of three attentions: to means of blocks, to selected blocks, and to a window.

    Yuan et al. 2025, "Native sparse attention", equations 5 to 12: three attentions of each query to earlier keys,
    each times a gate sigmoid(W x) per head, are added up. One is to the means of whole blocks. One is to the keys of
    the `k` blocks whose means get the largest weights, summed over the heads of a key-value head; the first block, the
    query's own and the one before are always among them, and so are blocks that tie with the last one, up to rounding.
    One is to the last `window` keys.

    As in flash-linear-attention, a block is compressed to the mean of its keys and that of its values, and the three
    attentions share keys and values; the paper has a learned compression and separate projections. This is the
    reference form: all scores are computed. The state is that of `Attention`.

    Args:
        num_heads, num_kv_heads, head_dim, scale, bias, dropout: as in `Attention`.
        block: number of keys per block.
        k: number of selected blocks, at least 1.
        window: number of keys in the window, the query's own included; at least 1.

    Raises:
        ValueError: `block`, k or `window` is below 1.
    """

    cuts: ClassVar[Cuts] = {}

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_heads: int = 4,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        block: int = 16,
        k: int = 4,
        window: int = 32,
        scale: float | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        if block < 1 or k < 1 or window < 1:
            raise ValueError(f"block, k and window must be at least 1, got {block}, {k} and {window}")
        super().__init__(
            d_model,
            layer,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            scale=scale,
            bias=bias,
            dropout=dropout,
        )
        self.block, self.k, self.window = block, k, window
        self.gate_proj = nn.Linear(d_model, 3 * num_heads)

    def sees_scores(self) -> bool:
        return True

    def flops(self, new: int, seen: int) -> int:
        of_blocks = 2 * new * seen * self._blocks(seen) * (2 * self.num_heads + self.num_kv_heads)
        return super().flops(new, seen) + of_blocks

    def _blocks(self, seen: int) -> int:
        return seen // self.block + 2  # never 1, which a graph of any length could not tell from a broadcast

    def _append(
        self, x: Tensor, heads: tuple[Tensor, Tensor, Tensor], state: State | None, pad_mask: Tensor | None
    ) -> Keys:
        keys = super()._append(x, heads, state, pad_mask)
        gates = torch.unflatten(self.gate_proj(x).sigmoid(), -1, (3, self.num_heads))  # (B, T, 3, H)
        return keys._replace(entries=keys.entries | {"gates": gates.permute(2, 0, 3, 1).unsqueeze(-1)})

    def _weights(self, q: Tensor, keys: Keys) -> Tensor:
        scores, allowed = self._scores(q, keys)  # (B, H, T, S), (B or 1, 1, T, S)
        now = keys.q_positions.unsqueeze(-1)  # (B or 1, T, 1)
        blocks = torch.arange(self._blocks(scores.shape[-1]), device=scores.device)  # (N,)
        member = ((keys.k_positions // self.block).unsqueeze(-1) == blocks).to(scores.dtype)  # (B or 1, S, N)
        member = member.unsqueeze(1)  # (B or 1, 1, S, N)

        mean = scores.masked_fill(~allowed, 0.0) @ member / self.block  # (B, H, T, N)
        whole = ((blocks + 1) * self.block <= now + 1).unsqueeze(1)  # (B or 1, 1, T, N)
        share = mean.masked_fill(~whole, torch.finfo(mean.dtype).min).softmax(dim=-1) * whole  # (B, H, T, N)
        compressed = (share / self.block @ member.mT).masked_fill(~allowed, 0.0)  # (B, H, T, S)

        chosen = (self._chosen(share, now // self.block, blocks).to(scores.dtype) @ member.mT) > 0  # (B, G, T, S)
        selected = allowed & repeat_heads(chosen, scores.shape[1])
        near = allowed & (now - keys.k_positions.unsqueeze(1) < self.window).unsqueeze(1)
        of_keys = [scores.masked_fill(~kept, -torch.inf).softmax(dim=-1) for kept in (selected, near)]
        gates = keys.entries["gates"]  # (3, B, H, T, 1)
        return gates[0] * compressed + gates[1] * of_keys[0] + gates[2] * of_keys[1]

    def _chosen(self, share: Tensor, own: Tensor, blocks: Tensor) -> Tensor:
        """Selected blocks (B, G, T, N) bool, from the weights of all blocks (B, H, T, N) and the queries' own blocks
        (B or 1, T, 1)."""
        weight = torch.unflatten(share, 1, (self.num_kv_heads, -1)).sum(dim=2)  # (B, G, T, N)
        always = ((blocks == 0) | (blocks == own) | (blocks == own - 1)).unsqueeze(1)  # (B or 1, 1, T, N)
        ranked = weight.masked_fill(always, torch.inf).masked_fill((blocks > own).unsqueeze(1), -torch.inf)
        # Padded by k columns, so that a query with fewer blocks has a k-th weight.
        padded = torch.cat((ranked, ranked.new_full((*ranked.shape[:-1], self.k), -torch.inf)), dim=-1)
        least = padded.topk(self.k, dim=-1).values[..., -1:]  # (B, G, T, 1)
        tied = TIE * torch.finfo(weight.dtype).eps * weight.amax(dim=-1, keepdim=True)
        return (ranked >= least - tied) & (blocks <= own).unsqueeze(1)
