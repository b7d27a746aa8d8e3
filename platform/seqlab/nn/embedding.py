"""Token embeddings with scaling or token types.

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
    """Sum of token and type embeddings; the type is the index of the token's segment (Devlin et al. 2019, "BERT",
    figure 2)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.types = nn.Embedding(2, d_model)

    def forward(self, tokens: Tensor, token_types: Tensor | None = None) -> Tensor:
        """Embeds tokens (B, T) with token_types (B, T), 0 or 1, None = all 0: (B, T, D)."""
        types = torch.zeros_like(tokens) if token_types is None else token_types
        # The order matters: torch 2.11 cannot add to the output of a table sharded over ranks.
        y: Tensor = self.types(types) + super().forward(tokens)  # (B, T, D)
        return y


def embedding_for(positions: PositionalEncoding, otherwise: type[nn.Embedding]) -> type[nn.Embedding]:
    """Embedding class used in an encoding's paper; `otherwise` if the encoding does not prescribe scaling."""
    if positions.scales_embeddings is None:
        return otherwise
    return ScaledEmbedding if positions.scales_embeddings else nn.Embedding
