"""A masked language model.

B batch, T length, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.mixer import Cuts
from seqlab.models.encoder import Encoder
from seqlab.models.kind import Kind


class MaskedLM(nn.Module):
    """Encoder with a masked-token head: a linear layer, GELU and a norm, then the tied embedding matrix and a bias
    (Devlin et al. 2019, "BERT", section 3.1, task 1, and their code).

    Args:
        vocab_size: vocabulary size of the data; the model adds one mask token.
        max_seq_len: training sequence length in tokens.
        encoder: factory of the encoder, called with V = vocab_size + 1 and max_seq_len.

    Attributes:
        mask_id: id of the mask token.
    """

    kind: ClassVar = Kind("texts", embedded_by="encoder.embedding")
    cuts: ClassVar[Cuts] = {"bias": "vocabulary"}

    def __init__(self, vocab_size: int, max_seq_len: int, *, encoder: Callable[[int, int], Encoder]) -> None:
        super().__init__()
        self.mask_id, self.vocab_size = vocab_size, vocab_size + 1
        self.encoder = encoder(vocab_size + 1, max_seq_len)
        self.max_seq_len = self.encoder.max_seq_len
        d_model = self.encoder.d_model
        self.transform, self.norm = nn.Linear(d_model, d_model), nn.LayerNorm(d_model)
        self.bias = nn.Parameter(torch.zeros(vocab_size + 1))

    def forward(self, tokens: Tensor, *, pad_mask: Tensor | None = None, features: bool = False) -> Tensor:
        """Logits (B, T, V) of the original tokens, given tokens (B, T) and pad_mask (B, T), True = a real token; with
        `features`, the inputs of `output` (B, T, D) instead."""
        x = self.norm(F.gelu(self.transform(self.encoder(tokens, pad_mask=pad_mask))))
        return x if features else self.output(x)

    def output(self, x: Tensor) -> Tensor:
        """Features (..., D) to logits (..., V)."""
        return F.linear(x, cast(nn.Embedding, self.encoder.embedding).weight, self.bias)
