"""The encoder: embed a sequence and mix it both ways.

B batch, T length, D d_model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from seqlab.mixer import Mixer, real_positions
from seqlab.nn import Block, Stack
from seqlab.nn.init import init_transformer
from seqlab.positions import PositionalEncoding, Sinusoidal


class Encoder(nn.Module):
    """Tokens to a vector each, over any mixer and any positional encoding (Vaswani et al. 2017, section 3.1).

    Args:
        vocab_size: number of tokens V.
        max_seq_len: the training length; encodings with a limit reach this far.
        mixer: called with d_model and the layer's index; a list is repeated over the layers. It need not be causal.
        positions: called with d_model and max_seq_len.
        block: called with d_model and the layer's mixer.
        scale_embeddings: whether embeddings are multiplied by sqrt(d_model) (section 3.4).
        dropout: on the embeddings, in training.
    """

    def __init__(
        self,
        vocab_size: int,
        max_seq_len: int,
        *,
        mixer: Callable[[int, int], Mixer] | list[Callable[[int, int], Mixer]],
        d_model: int = 256,
        num_layers: int = 3,
        positions: Callable[[int, int], PositionalEncoding] = Sinusoidal,
        block: Callable[[int, Mixer], Block] = Block,
        scale_embeddings: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model) if scale_embeddings else 1.0
        self.positions = positions(d_model, max_seq_len)
        self.dropout = nn.Dropout(dropout)
        self.stack = Stack(d_model, num_layers, mixer=mixer, positions=self.positions, block=block, causal=False)
        self.max_seq_len = self.positions.max_seq_len
        init_transformer(self)

    def forward(self, tokens: Tensor, *, pad_mask: Tensor | None = None) -> Tensor:
        """tokens (B, T) int64 and pad_mask (B, T) bool, True = a real token: (B, T, D).

        Raises:
            ValueError: the input is longer than the positions reach.
        """
        x = self.positions.embed(self.scale * self.embedding(tokens), real_positions(None, pad_mask, tokens))
        y: Tensor = self.stack(self.dropout(x), pad_mask=pad_mask)[0]
        return y
