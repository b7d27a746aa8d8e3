"""A tagger of sequences.

B batch, T length, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from seqlab.models.encoder import Encoder
from seqlab.models.kind import Kind


class Tagger(nn.Module):
    """Encoder with a linear layer on each output; with a bidirectional recurrence, the tagger of Huang et al. 2015,
    "Bidirectional LSTM-CRF models for sequence tagging", section 2.2, without a CRF.

    Args:
        vocab_size: vocabulary size, or number of features.
        num_classes: number C of classes or of labels.
        max_seq_len: training sequence length in tokens.
        encoder: factory of the encoder, called with vocab_size and max_seq_len.
        dropout: dropout probability on the outputs, in training.
    """

    kind: ClassVar = Kind("texts", embedded_by="encoder.embedding", labels="token")

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
        """Logits (B, T, C) of tokens (B, T) or features (B, T, F), with pad_mask (B, T), True = a real token.

        Raises:
            ValueError: as in `Encoder.forward`.
        """
        y: Tensor = self.head(self.dropout(self.encoder(inputs, pad_mask=pad_mask)))
        return y
