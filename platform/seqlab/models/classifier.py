"""Classifiers of whole sequences.

B batch, T length, F features, D d_model, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqlab.models.encoder import Encoder, check_inputs
from seqlab.models.kind import Kind
from seqlab.nn.padding import count_real, leading_pads, rotate_rows


class Classifier(nn.Module):
    """Encoder, pooling and a linear layer. Over patches and with a class token it is ViT (Dosovitskiy et al. 2021,
    equations 1 to 4).

    Args:
        vocab_size: vocabulary size, or number of features.
        num_classes: number C of classes or of labels.
        max_seq_len: training sequence length in tokens.
        encoder: factory of the encoder, called with vocab_size and max_seq_len.
        pool: "mean" over the outputs at real tokens, the "first" or "last" of them, or the output at a "class" token, a
            trained vector prepended to the sequence.
        pooler: whether a linear layer and tanh follow the pooling (Devlin et al. 2019, "BERT", and their code).
        dropout: dropout probability on the pooled vector, in training.
    """

    kind: ClassVar = Kind("texts", embedded_by="encoder.embedding", labels="text", once=("head", "pooler"))

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        max_seq_len: int,
        *,
        encoder: Callable[[int, int], Encoder],
        pool: Literal["mean", "first", "last", "class"] = "mean",
        pooler: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        has_token = pool == "class"
        self.encoder = encoder(vocab_size, max_seq_len + has_token)
        longest = self.encoder.max_seq_len
        self.max_seq_len = None if longest is None else longest - has_token
        self.class_token = nn.Parameter(torch.zeros(self.encoder.d_model)) if has_token else None
        self.pool = pool
        d_model = self.encoder.d_model
        self.pooler = nn.Sequential(nn.Linear(d_model, d_model), nn.Tanh()) if pooler else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.encoder.d_model, num_classes)

    def forward(self, inputs: Tensor, *, pad_mask: Tensor | None = None) -> Tensor:
        """Logits (B, C) of tokens (B, T) or features (B, T, F), with pad_mask (B, T), True = a real token.

        Raises:
            ValueError: as in `Encoder.forward`.
        """
        x = self.encoder.embed(inputs)  # (B, T, D)
        if self.class_token is not None:
            x, pad_mask = prepended(self.class_token, x, pad_mask)  # (B, 1 + T, D), (B, 1 + T)
        pooled_x = self.pooler(pooled(self.encoder.mix(x, pad_mask=pad_mask), pad_mask, self.pool))  # (B, D)
        y: Tensor = self.head(self.dropout(pooled_x))  # (B, C)
        return y


class BagOfWords(nn.Module):
    """Linear layer on the mean of the embeddings, which ignores token order (Joulin et al. 2017, "Bag of tricks for
    efficient text classification").

    Args:
        vocab_size: vocabulary size.
        num_classes: number of classes C.
        max_seq_len: unused, since there is no length limit.
        dropout: dropout probability on the mean, in training.
    """

    kind: ClassVar = Kind("texts", embedded_by="embedding", labels="text", once=("head",))

    def __init__(
        self, vocab_size: int, num_classes: int, max_seq_len: int, *, d_model: int = 128, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.max_seq_len = None
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(d_model, num_classes)

    def forward(self, tokens: Tensor, *, pad_mask: Tensor | None = None) -> Tensor:
        """Logits (B, C) of tokens (B, T), with pad_mask (B, T), True = a real token.

        Raises:
            ValueError: the inputs are features.
        """
        check_inputs(self.embedding, tokens)
        # (B, T, D) to (B, D) to (B, C)
        y: Tensor = self.head(self.dropout(pooled(self.embedding(tokens), pad_mask, "mean")))
        return y


def prepended(token: Tensor, x: Tensor, pad_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Prepends a vector (D,) to the real tokens of x (B, T, D): (B, T + 1, D) and its pad_mask. Leading pads become
    trailing."""
    tokens = token.expand(x.shape[0], 1, -1)  # (B, 1, D)
    if pad_mask is None:
        return torch.cat((tokens, x), dim=1), None
    lead = leading_pads(pad_mask)  # (B,)
    mask = torch.cat((pad_mask.new_ones(x.shape[0], 1), rotate_rows(pad_mask, lead)), dim=1)  # (B, 1 + T)
    return torch.cat((tokens, rotate_rows(x, lead)), dim=1), mask


def pooled(x: Tensor, pad_mask: Tensor | None, pool: str) -> Tensor:
    """Pools x (B, T, D) to (B, D); "class" takes the first real token. The mean of a row without real tokens is 0."""
    if pad_mask is None:
        pad_mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if pool == "mean":
        return (x * pad_mask.unsqueeze(-1)).sum(dim=1) / count_real(pad_mask, x).clamp(min=1).unsqueeze(-1)
    # Not argmax, which not every device has for integers; 0 for a row without real tokens.
    size = x.shape[1]
    place = torch.arange(size, device=x.device).expand(x.shape[:2])  # (B, T)
    found = ((place if pool == "last" else size - place) * pad_mask).amax(dim=1)  # (B,)
    if pool != "last":
        found = torch.where(found > 0, size - found, 0)
    return x[torch.arange(x.shape[0], device=x.device), found]  # (B, D)
