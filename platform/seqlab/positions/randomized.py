"""Randomised positions (Ruoss et al. 2023, "Randomized positional encodings boost length generalization")."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from seqlab.positions.base import PositionalEncoding
from seqlab.positions.embedded import EmbeddedEncoding, Sinusoidal


class Randomized(PositionalEncoding):
    """Gives an absolute encoding a sorted random subset of 0..max_position - 1 in place of 0, 1, 2, ... (section 3.1),
    so that training meets the positions of longer sequences.

    In training each call draws as many as it has tokens, the same for all rows, from torch's generator; a call cannot
    continue a state, whose draw is gone. In evaluation there is one draw, of `longest`, which the checkpoint holds: a
    token's position does not depend on how many follow. Refuses what is longer.

    Args:
        encoding: called with d_model and max_position.
        max_position: how many positions there are to draw from; the paper has 2048 for lengths up to 500.
        longest: tokens that evaluation can read; None = max_seq_len.
        seed: of the draw for evaluation.
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
                f"Randomized draws from {max_position} positions, too few for {self.max_seq_len} tokens; "
                "give it a larger max_position"
            )
        self.encoding = encoding(d_model, max_position)
        if not isinstance(self.encoding, EmbeddedEncoding):
            raise ValueError(
                "Randomized draws positions for encodings of the embeddings (Sinusoidal, Learned, Integer, Binary), "
                f"got {type(self.encoding).__name__}"
            )
        self.scales_embeddings = self.encoding.scales_embeddings
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(max_position, generator=generator, device="cpu")
        self.register_buffer("draw", order[: self.max_seq_len].sort().values)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Raises ValueError past the limit, or in training where the positions do not begin at 0 (on a GPU and
        compiled: an index error)."""
        if not self.training:
            self.check_length(positions)
            return self.encoding.embed(x, self.draw[positions])
        length = positions.shape[1]
        if length > self.max_position:
            raise ValueError(f"Randomized draws from {self.max_position} positions, the input has {length} tokens")
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and int(positions.max()) >= length:
            raise ValueError("Randomized positions are drawn anew by each call in training: it cannot continue a state")
        draw = torch.randperm(self.max_position, device=positions.device)[:length].sort().values
        return self.encoding.embed(x, draw[positions])
