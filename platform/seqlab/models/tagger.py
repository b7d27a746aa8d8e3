"""A tagger of sequences.

B batch, T length, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from seqlab.models.encoder import Encoder


class Tagger(nn.Module):
    """An encoder, and a linear layer on each of its outputs: over a recurrence that reads both ways, the tagger of
    Huang et al. 2015, "Bidirectional LSTM-CRF models for sequence tagging", section 2.2, without a CRF.

    Args:
        vocab_size: number of tokens, or of features.
        num_classes: C, or as many labels.
        max_seq_len: the training length.
        encoder: called with vocab_size and max_seq_len.
        dropout: on the outputs, in training.
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        max_seq_len: int,
        *,
        encoder: Callable[[int, int], Encoder],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder(vocab_size, max_seq_len)
        self.max_seq_len = self.encoder.max_seq_len
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.encoder.d_model, num_classes)

    def forward(self, inputs: Tensor, *, pad_mask: Tensor | None = None) -> Tensor:
        """inputs (B, T) tokens or (B, T, F) features, and pad_mask (B, T), True = a real token: logits (B, T, C).

        Raises:
            ValueError: as of `Encoder`.
        """
        y: Tensor = self.head(self.dropout(self.encoder(inputs, pad_mask=pad_mask)))
        return y
