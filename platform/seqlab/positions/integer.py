"""The position as a number."""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.positions.embedded import Combine, EmbeddedEncoding


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
