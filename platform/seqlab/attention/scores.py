"""Attention scores of queries with cached keys: masking, positional biases and the attention output.

B batch, T query length, S key length, D d_model, H heads, K head_dim, V value width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.attention.cache import Keys, append, cache_spec
from seqlab.attention.patterns import Causal, Pattern
from seqlab.mixer import Mixer, State, StateSpec
from seqlab.nn.heads import repeat_heads
from seqlab.nn.operation import operation
from seqlab.nn.padding import real_positions
from seqlab.positions.base import PositionalEncoding


class Scoring(NamedTuple):
    """Mask pattern, positional encoding and scale of the attention scores."""

    pattern: Pattern
    positions: PositionalEncoding
    scale: float


class SelfAttention(Mixer):
    """Mixer whose queries attend to the keys of a cache, which is its state.

    Attributes:
        rows: shapes (..., K) of the cached tensors for one key, by name.
        scoring: mask pattern, attached positions and scale; the model owns the positions and their parameters.
        dropout: dropout probability on the attention weights, in training.
    """

    rows: dict[str, tuple[int, ...]]
    scoring: Scoring
    dropout: float

    def state_spec(self) -> StateSpec:
        return cache_spec(self.rows, self.scoring.pattern.window, self.capacity) if self.causal else ()

    def flops_of_heads(self, new: int, seen: int, num_heads: int, key_width: int, value_width: int) -> int:
        """FLOPs of all query-key pairs, including masked pairs, which some kernels skip."""
        pattern, positions, _ = self.scoring
        if new == 1 and pattern.window is not None:
            seen = min(seen, pattern.window)
        pairs = 2 * new * seen * num_heads * (key_width + value_width)
        return pairs + positions.flops(new, seen, num_heads, key_width)

    def append(self, x: Tensor, new: dict[str, Tensor], state: State | None, pad_mask: Tensor | None) -> Keys:
        """Appends the keys of x (B, T, D), whose cache entries are `new` (B, ..., T, K), to the keys of a state."""
        if state is None and self.capacity is not None and self.causal:
            state = self.init_state(x.shape[0])
        length = self.state_spec()[-1].dims[-2] if self.causal else "S"
        return append(x, new, state, pad_mask, length)

    def rotated(self, q: Tensor, k: Tensor, x: Tensor, state: State | None, pad_mask: Tensor | None) -> list[Tensor]:
        """Queries and keys of x (B, T, D), rotated by position if the encoding acts on them."""
        if self.scoring.positions.acts_on != "queries and keys":
            return [q, k]
        start = None if state is None else state["position"]
        return list(self.scoring.positions.rotate(q, k, real_positions(start, pad_mask, x)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keys: Keys) -> Tensor:
        """`attend` with this mixer's scoring."""
        return attend(q, k, v, keys, self.scoring, dropout=self.dropout_now())

    def dropout_now(self) -> float:
        return self.dropout if self.training else 0.0


def attend(q: Tensor, k: Tensor, v: Tensor, keys: Keys, scoring: Scoring, *, dropout: float) -> Tensor:
    """Scaled dot-product attention by a fused kernel: (B, H, T, V).

    Args:
        q: (B, H, T, K).
        k: (B, num_kv_heads, S, K).
        v: (B, num_kv_heads, S, V).
        keys: positions of the queries and keys, and the mask of real keys.
        dropout: dropout probability on the attention weights in this call.
    """
    mask = _attn_mask(q, k, keys, scoring)
    causal = scoring.pattern.causal and mask is None
    return dot_product_attention(q, k, v, mask, causal=causal, scale=scoring.scale, dropout=dropout)


@operation
def dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool, scale: float, dropout: float
) -> Tensor:
    """Computes softmax(scale q k^T) v under `mask`, (B, H, T, V), with PyTorch's fused kernels; shapes as `attend`."""
    grouped = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def scores_of(q: Tensor, k: Tensor, keys: Keys, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """Unmasked scores (B, H, T, S) of `attend`, materialised, and the mask `allowed` (B or 1, 1, T, S)."""
    scores = q @ repeat_heads(k, q.shape[1]).transpose(-2, -1) * scoring.scale  # (B, H, T, K) @ (B, H, K, S)
    allowed = allowed_pairs(scoring.pattern, keys)
    bias = _bias(q * scoring.scale, k, keys, allowed, scoring.positions)  # (B or 1, H, T, S)
    return scores if bias is None else scores + bias, allowed


def allowed_pairs(pattern: Pattern, keys: Keys) -> Tensor:
    """Mask (B or 1, 1, T, S) bool, True = may attend. A pad attends to itself, so that no row is empty."""
    allowed = pattern.allows(keys.q_positions, keys.k_positions)  # (B or 1, T, S)
    if keys.mask is not None:
        own = torch.arange(keys.mask.shape[1], device=keys.mask.device) == keys.own.unsqueeze(-1)  # (B or 1, T, S)
        allowed = (allowed & keys.mask[:, None, :]) | own  # (B, T, S)
    return allowed.unsqueeze(1)  # (B or 1, 1, T, S)


def _attn_mask(q: Tensor, k: Tensor, keys: Keys, scoring: Scoring) -> Tensor | None:
    """Mask (B, 1 or H, T, S): bool, True = may attend, or float with a score bias. None if a causal flag or no mask
    suffices."""
    pattern, positions, scale = scoring
    plain = keys.mask is None and (type(pattern) is Causal or not pattern.causal)
    if plain and positions.acts_on != "attention scores":
        return None
    allowed = allowed_pairs(pattern, keys)  # (B or 1, 1, T, S)
    bias = _bias(q * scale, k, keys, allowed, positions)  # (B or 1, H, T, S)
    return allowed if bias is None else bias.masked_fill(~allowed, -torch.inf)


def _bias(q: Tensor, k: Tensor, keys: Keys, allowed: Tensor, positions: PositionalEncoding) -> Tensor | None:
    if positions.acts_on != "attention scores":
        return None
    return positions.bias(q, k, keys.q_positions, keys.k_positions, allowed)
