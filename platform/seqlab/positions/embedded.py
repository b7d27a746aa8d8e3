"""What encodings of the embeddings share: their channels are added, or concatenated.

B batch, T length, D d_model, W channels of the encoding.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding

Combine = Literal["add", "concatenate"]


class EmbeddedEncoding(PositionalEncoding):
    """Tells positions in the embeddings. An encoding overrides `encode`.

    Added: x + encode(p). Concatenated: the W channels of encode(p) are appended to the D of x, and a trained matrix
    takes these D + W back to D, so that models, mixers and tied output layers are the same either way. At first it
    passes x on as it is and adds a small random projection of the encoding.

    What is constant has a size that no training changes, about 1: the embeddings are scaled to it (Vaswani et al. 2017,
    section 3.4).

    Args:
        width: W; added, D or 1 (one number for all channels).
        combine: "add" or "concatenate".
    """

    scales_embeddings = True

    def __init__(self, d_model: int, max_seq_len: int, *, width: int, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len)
        if combine not in ("add", "concatenate"):
            raise ValueError(f"combine must be add or concatenate, got {combine}")
        self.combine = combine
        if combine == "concatenate":
            # A parameter, since the models initialise every nn.Linear anew.
            start = torch.cat((torch.eye(d_model), nn.init.normal_(torch.empty(d_model, width), std=0.02)), dim=1)
            self.projection = nn.Parameter(start)

    @abstractmethod
    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Positions (B or 1, T) int64 to (B or 1, T, W), for embeddings of `dtype`."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self.check_length(positions)
        encoded = self.encode(positions, x.dtype).to(x.dtype)
        if self.combine == "add":
            return x + encoded
        both = torch.cat((x, encoded.expand(x.shape[0], -1, -1)), dim=-1)
        return F.linear(both, self.projection).to(x.dtype)
