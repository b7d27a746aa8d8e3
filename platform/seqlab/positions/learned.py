"""Learned absolute positions (Gehring et al. 2017; GPT-2, BERT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding


class Learned(PositionalEncoding):
    """Adds one trained vector per position. max_seq_len * d_model parameters; refuses what is longer."""

    def __init__(self, d_model: int, max_seq_len: int) -> None:
        super().__init__(d_model, max_seq_len)
        self.max_seq_len: int = max_seq_len
        self.table = nn.Embedding(max_seq_len, d_model)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Raises ValueError past max_seq_len (compiled and on a GPU, only where one call alone is too long)."""
        longest = x.shape[1]
        if positions.device.type == "cpu" and not torch.compiler.is_compiling():
            longest = int(positions.max()) + 1
        if longest > self.max_seq_len:
            raise ValueError(
                f"Learned positions reach {self.max_seq_len} tokens, the input reaches {longest}; shorten it or use "
                "an encoding without a limit (NoPositions, Sinusoidal, RoPE, ALiBi)"
            )
        table: Tensor = self.table(positions)
        return x + table
