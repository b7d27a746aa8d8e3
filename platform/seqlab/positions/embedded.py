"""Encodings of the embeddings: their channels are added, or concatenated.

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


class Sinusoidal(EmbeddedEncoding):
    """Tells sin(p / 10000^(2i/D)) in channel 2i and the cosine in channel 2i + 1 (Vaswani et al. 2017, section 3.5). No
    limit.

    Args:
        base: wavelengths run from 2 pi to base * 2 pi.
        combine: "add" as in the paper, or "concatenate".
    """

    def __init__(self, d_model: int, max_seq_len: int, *, base: float = 10000.0, combine: Combine = "add") -> None:
        super().__init__(d_model, max_seq_len, width=d_model, combine=combine)
        if d_model % 2:
            raise ValueError(f"Sinusoidal needs an even d_model, got {d_model}")
        self.angles = Angles(geometric(base, d_model))

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        angle = self.angles(positions, dtype)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)  # (B, T, D/2, 2) to (B, T, D)


class Learned(EmbeddedEncoding):
    """Tells one trained vector per position (Gehring et al. 2017; GPT-2, BERT). Refuses what is longer than
    max_seq_len.

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


class Integer(EmbeddedEncoding):
    """Tells p itself: appended as a channel, or added to every one. The plainest encoding, to compare others with.

    Added, it is a constant over the channels, which a norm that subtracts the mean (LayerNorm) removes: then it tells
    nothing. Unscaled it soon outweighs the embeddings. No limit.

    Args:
        scaled: p / max_seq_len instead, below 1 within the training length.
        combine: "concatenate" or "add".
    """

    def __init__(
        self, d_model: int, max_seq_len: int, *, scaled: bool = False, combine: Combine = "concatenate"
    ) -> None:
        super().__init__(d_model, max_seq_len, width=1, combine=combine)
        if scaled and max_seq_len < 1:
            raise ValueError(f"Integer positions scaled by max_seq_len need at least 1, got {max_seq_len}")
        self.scale = max_seq_len if scaled else 1

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return positions.unsqueeze(-1).to(torch.promote_types(dtype, torch.float32)) / self.scale


class Binary(EmbeddedEncoding):
    """Tells the bits of p, 0 or 1, the least significant first: channel b is bit b. Sinusoids are its smooth form.

    As many bits as max_seq_len positions need; added, the channels above them are left as they are. Refuses what is
    longer.

    Args:
        combine: "add" or "concatenate".
    """

    powers: Tensor

    def __init__(self, d_model: int, max_seq_len: int, *, combine: Combine = "add") -> None:
        self.num_bits = max(1, (max_seq_len - 1).bit_length())
        super().__init__(d_model, max_seq_len, width=self.num_bits, combine=combine)
        if combine == "add" and self.num_bits > d_model:
            raise ValueError(
                f"Binary positions up to {max_seq_len} need {self.num_bits} channels, d_model is {d_model}; "
                "concatenate them instead"
            )
        self.max_seq_len: int = max_seq_len
        self.padding = d_model - self.num_bits if combine == "add" else 0
        powers = torch.tensor([1 << bit for bit in range(self.num_bits)])
        self.register_buffer("powers", powers, persistent=False)

    def encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        bits = (positions.unsqueeze(-1) & self.powers) != 0
        return F.pad(bits.to(dtype), (0, self.padding))
