"""Positional encodings that are added to the embeddings or concatenated with them.

B batch, T length, D d_model, W channels of the encoding.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.constant import Angles, geometric

Combine = Literal["add", "concatenate"]


class EmbeddedEncoding(PositionalEncoding):
    """Encodes positions in the embeddings. A subclass overrides `encode`.

    "add" computes x + encode(p). "concatenate" appends the W channels of encode(p) to the D channels of x, and a
    learned matrix projects D + W back to D, so models, mixers and tied output layers are the same either way. At
    initialisation it passes x through and adds a small random projection of the encoding.

    A constant encoding has a fixed magnitude of about 1, so the embeddings are scaled to match (Vaswani et al. 2017,
    section 3.4).

    Args:
        width: channels W of the encoding; with "add", D or 1 (one number for all channels).
        combine: "add" or "concatenate".
    """

    scales_embeddings = True

    def __init__(self, d_model: int, max_seq_len: int, *, width: int, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len)
        if combine not in ("add", "concatenate"):
            raise ValueError(f"combine must be add or concatenate, got {combine}")
        self.combine = combine
        if combine == "concatenate":
            # A parameter instead of an nn.Linear, since models reinitialise every nn.Linear.
            start = torch.cat((torch.eye(d_model), nn.init.normal_(torch.empty(d_model, width), std=0.02)), dim=1)
            self.projection = nn.Parameter(start)

    @abstractmethod
    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Encodes positions (B or 1, T) int64 as (B or 1, T, W), for embeddings of `dtype`."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self.check_length(positions)
        encoded = self.encode(positions, x.dtype).to(x.dtype)
        if self.combine == "add":
            return x + encoded
        both = torch.cat((x, encoded.expand(x.shape[0], -1, -1)), dim=-1)  # (B, T, D + W)
        return F.linear(both, self.projection).to(x.dtype)  # (B, T, D)


class Sinusoidal(EmbeddedEncoding):
    """sin(p / 10000^(2i/D)) in channel 2i, the cosine in channel 2i + 1 (Vaswani et al. 2017, section 3.5). No limit.

    Args:
        base: base of the frequencies; wavelengths run from 2 pi to base * 2 pi tokens.
        combine: "add" as in the paper, or "concatenate".
    """

    def __init__(self, d_model: int, max_seq_len: int, *, base: float = 10000.0, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len, width=d_model, combine=combine)
        if d_model % 2:
            raise ValueError(f"Sinusoidal needs an even d_model, got {d_model}")
        self.angles = Angles(geometric(base, d_model))

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        angle = self.angles(positions, dtype)  # (B or 1, T, D/2)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)  # (B or 1, T, D/2, 2) to (B or 1, T, D)


class Learned(EmbeddedEncoding):
    """One learned vector per position (Gehring et al. 2017; GPT-2, BERT). Inputs longer than max_seq_len are rejected.

    Args:
        combine: "add" as in the paper, or "concatenate".
    """

    scales_embeddings = False

    def __init__(self, d_model: int, max_seq_len: int, *, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len, width=d_model, combine=combine)
        self.max_seq_len: int = max_seq_len
        self.table = nn.Embedding(max_seq_len, d_model)

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        table: Tensor = self.table(positions)  # (B or 1, T, D)
        return table


class Integer(EmbeddedEncoding):
    """Position p itself, appended as a channel or added to every channel: a baseline for the other encodings.

    If added, it is constant over the channels, so a norm that subtracts the mean (LayerNorm) removes it. Unscaled, it
    soon outweighs the embeddings. No limit.

    Args:
        scaled: whether to use p / max_seq_len instead, below 1 within the training length.
        combine: "concatenate" or "add".
    """

    def __init__(
        self, d_model: int, max_seq_len: int, *, scaled: bool = False, combine: Combine = "concatenate"
    ) -> None:
        super().__init__(d_model, max_seq_len, width=1, combine=combine)
        if scaled and max_seq_len < 1:
            raise ValueError(f"scaled Integer positions need a max_seq_len of at least 1, got {max_seq_len}")
        self.scale = max_seq_len if scaled else 1

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return positions.unsqueeze(-1).to(torch.promote_types(dtype, torch.float32)) / self.scale  # (B or 1, T, 1)


class Binary(EmbeddedEncoding):
    """Bits of p, 0 or 1, the least significant first: channel b is bit b. Sinusoids are a smooth version of this.

    Uses the number of bits that max_seq_len positions need; with "add", the remaining channels are unchanged. Longer
    inputs are rejected.

    Args:
        combine: "add" or "concatenate".
    """

    powers: Tensor

    def __init__(self, d_model: int, max_seq_len: int, *, combine: Combine = "add") -> None:
        self.num_bits = max(1, (max_seq_len - 1).bit_length())
        super().__init__(d_model, max_seq_len, width=self.num_bits, combine=combine)
        if combine == "add" and self.num_bits > d_model:
            raise ValueError(
                f"Binary positions up to {max_seq_len} need {self.num_bits} channels, but d_model is {d_model}; set "
                "combine to concatenate, or give a larger d_model"
            )
        self.max_seq_len: int = max_seq_len
        self.padding = d_model - self.num_bits if combine == "add" else 0
        powers = torch.tensor([1 << bit for bit in range(self.num_bits)])
        self.register_buffer("powers", powers, persistent=False)

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        bits = (positions.unsqueeze(-1) & self.powers) != 0  # (B or 1, T, num_bits)
        return F.pad(bits.to(dtype), (0, self.padding))  # (B or 1, T, W)
