"""Randomised positions (Ruoss et al. 2023, "Randomized positional encodings boost length generalization").

T length.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.embedded import EmbeddedEncoding, Sinusoidal


class Randomized(PositionalEncoding):
    """Feeds an absolute encoding a sorted random subset of 0..max_position - 1 instead of 0, 1, 2, ... (section 3.1).
    Training then covers the positions of longer sequences.

    In training each call draws one position per token, shared by all rows, from torch's generator; a call cannot
    continue a state, since its draw is lost. Evaluation uses one fixed draw of `longest` positions, stored in the
    checkpoint, so a token's position does not depend on the sequence length. Longer inputs are rejected.

    Args:
        encoding: factory of the absolute encoding, called with d_model and max_position.
        max_position: number of positions to draw from; 2048 in the paper, for lengths up to 500.
        longest: maximum length in evaluation, in tokens; None = max_seq_len.
        seed: random seed of the draw for evaluation.
    """

    draw: Tensor

    def __init__(
        self,
        d_model: int,
        max_seq_len: int,
        *,
        encoding: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        max_position: int = 2048,
        longest: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(d_model, max_seq_len)
        self.max_position = max_position
        self.max_seq_len: int = max_seq_len if longest is None else longest
        if self.max_seq_len > max_position:
            raise ValueError(
                f"Randomized draws from {max_position} positions, which are too few for {self.max_seq_len} tokens; "
                "give it a larger max_position"
            )
        self.encoding = encoding(d_model, max_position)
        if not isinstance(self.encoding, EmbeddedEncoding):
            raise ValueError(
                "the encoding of Randomized must act on the embeddings (Sinusoidal, Learned, Integer, Binary), "
                f"got {type(self.encoding).__name__}"
            )
        self.scales_embeddings = self.encoding.scales_embeddings
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(max_position, generator=generator, device="cpu")
        self.register_buffer("draw", order[: self.max_seq_len].sort().values)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Raises ValueError past the limit, or in training if the call continues a state (on a GPU or compiled: an
        index error)."""
        if not self.training:
            self.check_length(positions)
            return self.encoding.embed(x, self.draw[positions])
        length = positions.shape[1]
        if length > self.max_position:
            raise ValueError(f"Randomized draws from {self.max_position} positions, but the input has {length} tokens")
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and int(positions.max()) >= length:
            raise ValueError(
                "Randomized draws new positions in each training call, which therefore cannot continue a state"
            )
        draw = torch.randperm(self.max_position, device=positions.device)[:length].sort().values  # (T,)
        return self.encoding.embed(x, draw[positions])
