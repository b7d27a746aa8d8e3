"""Token embeddings that are more than a table.

B batch, T length, D d_model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from seqlab.positions import PositionalEncoding


class ScaledEmbedding(nn.Embedding):
    """Embeddings times sqrt(D) (Vaswani et al. 2017, section 3.4)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (B, T) to (B, T, D)."""
        return math.sqrt(self.embedding_dim) * super().forward(tokens)


class TypedEmbedding(nn.Embedding):
    """Sum of a token's vector and its type's: which of two texts it is in (Devlin et al. 2019, "BERT", figure 2)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.types = nn.Embedding(2, d_model)

    def forward(self, tokens: Tensor, token_types: Tensor | None = None) -> Tensor:
        """tokens and token_types (B, T), 0 or 1, all 0 where there are none: (B, T, D)."""
        types = torch.zeros_like(tokens) if token_types is None else token_types
        # In this order: of a table that is divided over ranks torch 2.11 cannot add to what it gives.
        y: Tensor = self.types(types) + super().forward(tokens)
        return y


def embedding_for(positions: PositionalEncoding, otherwise: type[nn.Embedding]) -> type[nn.Embedding]:
    """The embedding class of an encoding's paper; `otherwise` where it makes no difference to the encoding."""
    if positions.scales_embeddings is None:
        return otherwise
    return ScaledEmbedding if positions.scales_embeddings else nn.Embedding
