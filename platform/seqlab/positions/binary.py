"""The position in binary."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.positions.embedded import Combine, EmbeddedEncoding


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
