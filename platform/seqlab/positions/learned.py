"""Learned absolute positions (Gehring et al. 2017; GPT-2, BERT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.positions.embedded import Combine, EmbeddedEncoding


class Learned(EmbeddedEncoding):
    """Tells one trained vector per position. Refuses what is longer than max_seq_len.

    Args:
        combine: "add" as in the paper, or "concatenate".
    """

    scales_embeddings = False

    def __init__(self, d_model: int, max_seq_len: int, *, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len, width=d_model, combine=combine)
        self.max_seq_len: int = max_seq_len
        self.table = nn.Embedding(max_seq_len, d_model)

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        table: Tensor = self.table(positions)
        return table
