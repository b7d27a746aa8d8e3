"""Batch types shared by data modules and tasks. Torch only.

The `num_tokens` of a batch, (), counts the real tokens or frames that a model reads, in sources and in targets.

B batch, T length, S source length, F features, C labels.
"""

from __future__ import annotations

from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

IGNORE = -100
"""Target id excluded from the loss and from all metrics."""


class TokenBatch(NamedTuple):
    """Windows of a token stream for next-token prediction.

    Attributes:
        tokens: (B, T) int64, model inputs.
        targets: (B, T) int64, the token that follows each of `tokens`, or `IGNORE`.
        num_chars: (B,) int64, characters of source text covered by the window's counted targets.
        num_bytes, num_words: (B,) int64, likewise for bytes and words, a newline counting as a word; None = unknown.
        rows: (B,) int64, indices of the windows in their split, -1 where nothing counts; None = unknown.
        documents: (B, T) int64, document of each token: consecutive tokens with the same number, below 0 at padding. No
            output depends on another document. None = a row is one text.
    """

    tokens: Tensor
    targets: Tensor
    num_chars: Tensor
    num_bytes: Tensor | None = None
    num_words: Tensor | None = None
    rows: Tensor | None = None
    documents: Tensor | None = None

    @property
    def pad_mask(self) -> Tensor:
        """(B, T) bool, True = a real token: every token of a row up to its last counted target."""
        counted = self.targets != IGNORE
        return counted.flip(1).int().cumsum(dim=1).flip(1) > 0

    @property
    def num_tokens(self) -> Tensor:
        return self.pad_mask.sum()


class PairBatch(NamedTuple):
    """Source-target pairs for sequence-to-sequence training with teacher forcing.

    Attributes:
        source: (B, S) int64, encoder inputs.
        source_mask: (B, S) bool, True = a real token.
        tokens: (B, T) int64, decoder inputs: bos, then the target.
        targets: (B, T) int64, decoder targets: the target, then eos; `IGNORE` at padding.
        rows: (B,) int64, indices of the pairs in their split, used to look up their references; -1 where nothing
            counts.
    """

    source: Tensor
    source_mask: Tensor
    tokens: Tensor
    targets: Tensor
    rows: Tensor

    @property
    def num_tokens(self) -> Tensor:
        counted = self.source_mask & (self.rows >= 0)[:, None]
        return counted.sum() + (self.targets != IGNORE).sum()


class LabelledBatch(NamedTuple):
    """Sequences and their labels.

    Attributes:
        inputs: (B, T) int64 tokens, or (B, T, F) features.
        pad_mask: (B, T) bool, True = a real token.
        targets: int64 classes (B,) or tags (B, T), with `IGNORE` at padding; or float32, NaN where nothing counts:
            regression targets (B,), or C binary labels, 0 or 1, per sequence (B, C) or per frame (B, T, C).
        rows: (B,) int64, indices of the sequences in their split, -1 where nothing counts; None = unknown.
    """

    inputs: Tensor
    pad_mask: Tensor
    targets: Tensor
    rows: Tensor | None = None

    @property
    def num_tokens(self) -> Tensor:
        counted = self.pad_mask if self.rows is None else self.pad_mask & (self.rows >= 0)[:, None]
        return counted.sum()


def alone(batch: TokenBatch) -> TokenBatch:
    """A packed batch with each document in a row of its own, right-padded, without counts of text; others unchanged."""
    if batch.documents is None:
        return batch
    tokens: list[Tensor] = []
    targets: list[Tensor] = []
    for row, ids in enumerate(batch.documents):
        lengths = ids.unique_consecutive(return_counts=True)[1].tolist()
        real = [bool(its[0] >= 0) for its in torch.split(ids, lengths)]
        tokens += compress(torch.split(batch.tokens[row], lengths), real)
        targets += compress(torch.split(batch.targets[row], lengths), real)
    counted = pad_sequence(targets, batch_first=True, padding_value=IGNORE)
    return TokenBatch(pad_sequence(tokens, batch_first=True), counted, num_chars=torch.zeros(len(tokens)))


def uncounted(batch: Any) -> Any:
    """Copy of a batch in which nothing counts: targets are `IGNORE` or NaN, counts are 0 and rows are -1. The inputs
    are unchanged."""
    targets = torch.full_like(batch.targets, torch.nan if batch.targets.is_floating_point() else IGNORE)
    amounts = {name: value for name, value in batch._asdict().items() if name.startswith("num_") and value is not None}
    nothing = {name: torch.zeros_like(value) for name, value in amounts.items()}
    return batch._replace(targets=targets, rows=torch.full((len(targets),), -1), **nothing)
