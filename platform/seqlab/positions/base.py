"""The positional-encoding contract: one argument of a model, three places to act.

B batch, T query length, S key length, D d_model, H heads, K head_dim.
"""

from __future__ import annotations

from abc import ABC
from typing import Literal

import torch
from torch import Tensor, nn


class PositionalEncoding(nn.Module, ABC):
    """Tells a model where each token stands.

    A model builds one encoding as `Encoding(d_model, max_seq_len, *, options)` and attaches it to every mixer. An
    encoding overrides the methods that its place calls for. Positions count real tokens only, from 0.

    Attributes:
        acts_on: where it acts: the embeddings (`embed`), queries and keys (`rotate`) or attention scores (`bias`).
        relative: whether only distances count: moving all tokens by the same number of places changes nothing.
        scales_embeddings: whether its paper multiplies embeddings by sqrt(D); None = it does not matter to it, and each
            model does as its own paper does.
        weighs_values: whether it overrides `values`, which needs the attention weights: no fused kernel can be used.
        max_seq_len: the longest length it can encode, in tokens; None = no limit.
    """

    acts_on: Literal["embeddings", "queries and keys", "attention scores"] = "embeddings"
    relative: bool = False
    scales_embeddings: bool | None = None
    weighs_values: bool = False
    max_seq_len: int | None = None

    def __init__(self, d_model: int, max_seq_len: int) -> None:
        super().__init__()

    def attach(self, num_heads: int, head_dim: int) -> None:
        """Called once by each attention mixer that takes this encoding.

        Raises:
            ValueError: the encoding does not fit these heads.
        """

    @property
    def of_each_head(self) -> bool:
        """True if the encoding has something for each head: a rank that has some of the heads would need its own."""
        learned = next(self.parameters(), None) is not None
        return self.acts_on == "attention scores" or (self.acts_on == "queries and keys" and learned)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings x (B, T, D) with their positions (B or 1, T) int64 encoded."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (B, H, T, K) and keys (B, num_kv_heads, T, K) at positions (B or 1, T) int64, rotated."""
        return q, k

    def rotation(self, head_dim: int, num_positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines (P, W/2) of the first positions, where rotating turns the channel pairs (i, i + W/2) by
        them; or None."""
        return None

    def bias(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, allowed: Tensor) -> Tensor | None:
        """Term to add to the scores, (B or 1, H, T, S), of the dtype of q; or None.

        Args:
            q: (B, H, T, K), scaled: with k they give the scores.
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
        """FLOPs that `bias` and `values` add to the attention of one sequence, as of `Mixer.flops`."""
        return 0

    def check_length(self, positions: Tensor) -> None:
        """Checks that positions (B or 1, T) are within `max_seq_len`.

        Raises:
            ValueError: they are not (on a GPU, only where one call is wide enough to be too long; compiled, where it is
                that wide).
        """
        if self.max_seq_len is None:
            return
        longest = positions.shape[1]
        # Reading a value of a GPU waits for it, so that is left to calls that may be too long.
        known = positions.device.type == "cpu" or longest > self.max_seq_len
        if known and not torch.compiler.is_compiling():
            longest = int(positions.max()) + 1
        if longest > self.max_seq_len:
            raise ValueError(
                f"{type(self).__name__} positions reach {self.max_seq_len} tokens, the input reaches {longest}; "
                "shorten it or use an encoding without a limit (NoPositions, Sinusoidal, RoPE, ALiBi)"
            )


class NoPositions(PositionalEncoding):
    """Leaves the model as it is: it knows the order only from its mixer (Kazemnejad et al. 2023, "NoPE"). No
    parameters, no limit."""

    relative = True
