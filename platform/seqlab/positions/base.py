"""The positional-encoding interface: one model argument that acts in one of three places.

B batch, T query length, S key length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from abc import ABC
from typing import Literal

import torch
from torch import Tensor, nn


class PositionalEncoding(nn.Module, ABC):
    """Positional encoding of a model.

    A model builds one encoding as `Encoding(d_model, max_seq_len, *, options)` and attaches it to every mixer. An
    encoding overrides the methods that belong to its `acts_on`. Positions count real tokens only, from 0.

    Attributes:
        acts_on: where it acts: the embeddings (`embed`), queries and keys (`rotate`) or attention scores (`bias`).
        relative: whether only distances count, so that shifting all positions by a constant changes nothing.
        scales_embeddings: whether its paper multiplies embeddings by sqrt(D); None = no preference, and each model
            follows its own paper.
        weighs_values: whether it overrides `values`, which needs attention weights and rules out fused kernels.
        max_seq_len: maximum length in tokens; None = unlimited.
    """

    acts_on: Literal["embeddings", "queries and keys", "attention scores"] = "embeddings"
    relative: bool = False
    scales_embeddings: bool | None = None
    weighs_values: bool = False
    max_seq_len: int | None = None

    def __init__(self, d_model: int, max_seq_len: int) -> None:
        super().__init__()

    def attach(self, num_heads: int, head_dim: int) -> None:
        """Called once by each attention mixer that uses this encoding.

        Raises:
            ValueError: the encoding is incompatible with these heads.
        """

    @property
    def of_each_head(self) -> bool:
        """True if the encoding has per-head data, which tensor parallelism would have to shard."""
        learned = next(self.parameters(), None) is not None
        return self.acts_on == "attention scores" or (self.acts_on == "queries and keys" and learned)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Adds positions (B or 1, T) int64 to embeddings x (B, T, D)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotates queries (B, H, T, K) and keys (B, num_kv_heads, T, K) by positions (B or 1, T) int64."""
        return q, k

    def rotation(self, head_dim: int, num_positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines (P, W/2) of the first P positions, if `rotate` turns the channel pairs (i, i + W/2) by
        them; otherwise None."""
        return None

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor | None:
        """Term to add to the scores, (B or 1, H, T, S), of the dtype of q; or None.

        Args:
            q: (B, H, T, K), scaled, so that q k^T are the scores.
            k: (B, num_kv_heads, S, K).
            q_positions: (B or 1, T) int64.
            k_positions: (B or 1, S) int64.
            allowed: (B or 1, 1, T, S) bool, True = may attend.
        """
        return None

    def values(self, weights: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """Term to add to the heads' outputs (B, H, T, K) for attention weights (B, H, T, S); or None."""
        return None

    def flops(self, new: int, seen: int, num_heads: int, head_dim: int) -> int:
        """FLOPs that `bias` and `values` add to the attention of one sequence, as in `Mixer.flops`."""
        return 0

    def check_length(self, positions: Tensor) -> None:
        """Checks that positions (B or 1, T) are within `max_seq_len`.

        Raises:
            ValueError: a position is beyond the limit. On a GPU it is detected only if this call alone has more than
                `max_seq_len` columns; compiled, exactly then.
        """
        if self.max_seq_len is None:
            return
        longest = positions.shape[1]
        # Reading a value from a GPU synchronises, so only calls that may be too long do it.
        known = positions.device.type == "cpu" or longest > self.max_seq_len
        if known and not torch.compiler.is_compiling():
            longest = int(positions.max()) + 1
        if longest > self.max_seq_len:
            raise ValueError(
                f"{type(self).__name__} positions reach {self.max_seq_len} tokens, but the input reaches {longest}; "
                "shorten it or use an encoding without a limit (NoPositions, Sinusoidal, RoPE, ALiBi)"
            )


class NoPositions(PositionalEncoding):
    """No positional encoding: token order enters only through the mixer (Kazemnejad et al. 2023, "NoPE"). No
    parameters, no limit."""

    relative = True
