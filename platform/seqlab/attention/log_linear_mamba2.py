"""Log-linear Mamba-2: a number of states that grows with the logarithm of the length (Guo et al. 2025).

B batch, T length, D d_model, H heads, P head_dim, N d_state, L levels, M sources (L levels, then T tokens).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.attention.mamba2 import Mamba2
from seqlab.mixer import POSITION, State, StateEntry, StateSpec
from seqlab.nn.numerics import at_least_float32, without_autocast
from seqlab.nn.updates import Updates


class LogLinearMamba2(Mamba2):
    """Mamba-2 with a state for each of log T stretches of the past.

    Guo et al. 2025, "Log-linear attention", section 3: `Mamba2` whose past is divided as in a Fenwick tree. Token t
    reads token s at level 0 if s = t, and otherwise at one more than the highest bit in which t and s differ, so that
    level l > 0 holds up to 2^(l-1) tokens, and the more, the older they are. Each level has a state S_l, and
    o_t = sum over l of lambda_{t,l} S_l^T q_t, with lambda_t = softplus(a * W x_t), a starting at 1 and W without
    bias, a separate layer. The last level also holds all that is older.

    This is the quadratic form: a call computes all pairs of its tokens. A step takes L times that of `Mamba2`, and L
    times more for moving states between levels.

    The state is `position (B,)`, `conv` as in `Mamba2`, and `s (B, H, L, N, P)`.

    Args:
        num_levels: number of levels L, at least 2; the last begins 2^(L-2) tokens ago.
        options: options of `Mamba2`.

    Raises:
        ValueError: num_levels is below 2, or as in `Mamba2`.
    """

    def __init__(
        self,
        d_model: int,
        layer: int = 0,
        *,
        num_levels: int = 12,
        **options: Any,
    ) -> None:
        if num_levels < 2:
            raise ValueError(f"num_levels must be at least 2, got {num_levels}")
        super().__init__(d_model, layer, **options)
        self.num_levels = num_levels
        self.level_proj = nn.Linear(d_model, self.num_heads * num_levels, bias=False)
        self.level_scale = nn.Parameter(torch.ones(self.num_heads, num_levels))

    def flops(self, new: int, seen: int) -> int:
        of_levels = self.num_levels * self.d_state * self.head_dim * (2 * new + self.num_levels)
        return 2 * self.num_heads * (new * new * (self.d_state + self.head_dim) + of_levels)

    def state_spec(self) -> StateSpec:
        conv, s = super().state_spec()
        return POSITION, conv, StateEntry(s.name, (self.num_heads, self.num_levels, self.d_state, self.head_dim))

    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        y, new_state = super().mix(x, state, real, single=single)
        count = x.shape[1] if real is None else real.sum(dim=1)
        return y, {"position": state["position"] + count, **new_state}

    def recur(
        self, x: Tensor, updates: Updates, state: State, real: Tensor | None, *, single: bool
    ) -> tuple[Tensor, State]:
        scales = torch.unflatten(self.level_proj(x), -1, (self.num_heads, -1))  # (B, T, H, L)
        scales = F.softplus(self.level_scale * scales)  # (B, T, H, L)
        if real is not None:
            pad = ~real[:, :, None, None]  # (B, T, 1, 1)
            k, log_decay = updates.k.masked_fill(pad, 0.0), updates.log_decay.masked_fill(pad, 0.0)
            updates = updates._replace(k=k, log_decay=log_decay)
        with without_autocast(x):
            heads = updates.each(lambda y: at_least_float32(y).transpose(1, 2))  # (B, H, T, ...) each
            before = state["position"][:, None] - 1  # (B, 1), the last token of the state
            tokens = before + 1 + torch.arange(x.shape[1], device=x.device)  # (B, T)
            last = tokens[:, -1:] if real is None else before + real.sum(dim=1, keepdim=True)  # (B, 1)
            sources = torch.cat((self._ends(before), tokens), dim=1)  # (B, M)
            read, kept = self._levels(tokens, sources), self._levels(last, sources)  # (B, T, M), (B, 1, M)
            s = at_least_float32(state["s"])
            o, s = over_levels(heads, at_least_float32(scales), s, read, kept.squeeze(1))
        return o.transpose(1, 2), {"s": s.to(state["s"].dtype)}

    def _sizes(self, like: Tensor) -> Tensor:
        """Number of tokens of the levels 1 to L - 1, (L - 1,) int64."""
        return torch.tensor([1 << level for level in range(self.num_levels - 1)], device=like.device)

    def _ends(self, last: Tensor) -> Tensor:
        """Last token that each level holds, (B, L), once token `last` (B, 1) has been read; any for an empty level."""
        sizes = self._sizes(last)
        return torch.cat((last, last // sizes * sizes - 1), dim=1)

    def _levels(self, tokens: Tensor, sources: Tensor) -> Tensor:
        """Level at which each token (B, T) reads each source (B, M): (B, T, M) int64."""
        sizes = self._sizes(tokens)
        # (B, T, 1, L - 1) and (B, 1, M, L - 1): bits above each level's
        above, sources_above = tokens[:, :, None, None] // sizes, sources[:, None, :, None] // sizes
        return (above != sources_above).sum(dim=-1)


def over_levels(heads: Updates, scales: Tensor, s: Tensor, read: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """o (B, H, T, P) and the next states of the levels, from their states s (B, H, L, N, P).

    Args:
        heads: tensors (B, H, T, ...).
        scales: (B, T, H, L), factor of each level.
        read: (B, T, M), level at which each token reads each source.
        kept: (B, M), level of each source after the call.
    """
    num_levels, length = s.shape[2], heads.q.shape[2]
    start = heads.log_decay.cumsum(dim=2).exp()  # (B, H, T, 1), decay from the start
    # Each sum over the tokens after s has its own column: differences of sums from the start would cancel.
    decay = heads.log_decay.expand(-1, -1, -1, length).tril(-1).cumsum(dim=2).exp().tril()  # (B, H, T, T)
    scale = scales.gather(-1, read.unsqueeze(2).expand(-1, -1, scales.shape[2], -1)).transpose(1, 2)  # (B, H, T, M)
    of_levels, of_tokens = torch.split(scale, [num_levels, length], dim=-1)  # (B, H, T, L), (B, H, T, T)
    by_level = heads.q.unsqueeze(2) @ s  # (B, H, L, T, P)
    o = (by_level * (of_levels * start).mT.unsqueeze(-1)).sum(dim=2)  # (B, H, T, P)
    o = o + (heads.q @ heads.k.mT * of_tokens * decay) @ heads.v

    moved = (kept.unsqueeze(-1) == torch.arange(num_levels, device=kept.device)).to(s.dtype)  # (B, M, L)
    levels, tokens = torch.split(moved, [num_levels, length], dim=1)  # (B, L, L), (B, T, L)
    k_end = heads.k * decay[:, :, -1].unsqueeze(-1)  # (B, H, T, N)
    old = torch.unflatten(levels.mT.unsqueeze(1) @ s.flatten(3), -1, s.shape[3:])  # (B, H, L, N, P)
    placed = (tokens[:, None, :, :, None] * k_end.unsqueeze(3)).flatten(3)  # (B, H, T, L N)
    new = torch.unflatten(placed.mT @ heads.v, 2, (num_levels, -1))  # (B, H, L, N, P)
    return o, old * start[:, :, -1:].unsqueeze(-1) + new
