"""A classifier by the last token.

B batch, T length, C classes.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from seqlab.models.classifier import pooled
from seqlab.models.kind import Kind


class Latest(nn.Module):
    """Linear layer on the embedding of the last token.

    Args:
        vocab_size: vocabulary size.
        num_classes: number of classes C.
        max_seq_len: unused, since there is no length limit.
    """

    kind: ClassVar = Kind("texts", embedded_by="embedding", labels="text", once=("head",))

    def __init__(self, vocab_size: int, num_classes: int, max_seq_len: int, *, d_model: int = 128) -> None:
        super().__init__()
        self.max_seq_len = None
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.head = nn.Linear(d_model, num_classes)

    def forward(self, tokens: Tensor, *, pad_mask: Tensor | None = None) -> Tensor:
        """Logits (B, C) of tokens (B, T), with pad_mask (B, T), True = a real token."""
        y: Tensor = self.head(pooled(self.embedding(tokens), pad_mask, "last"))
        return y
