"""The batch types that data and tasks share. Torch only.

The `num_tokens` of a batch, (): the real tokens or frames that a model reads of it, of sources and of targets.

B batch, T length, S source length, F features, C labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

IGNORE = -100
"""A target with this id is not predicted: it counts neither in the loss nor in a metric."""


class TokenBatch(NamedTuple):
    """Windows of a token stream for next-token prediction.

    Attributes:
        tokens: (B, T) int64, what the model reads.
        targets: (B, T) int64, the token that follows each of `tokens`, or `IGNORE`.
        num_chars: (B,) int64, characters of source text that the window's counted targets stand for.
        num_bytes, num_words: the same of bytes and of words, each newline being one more; None = unknown.
        rows: (B,) int64, the places of the windows in their split, -1 where nothing counts; None = unknown.
    """

    tokens: Tensor
    targets: Tensor
    num_chars: Tensor
    num_bytes: Tensor | None = None
    num_words: Tensor | None = None
    rows: Tensor | None = None

    @property
    def pad_mask(self) -> Tensor:
        """(B, T) bool, True = a real token: those of each row up to its last target that counts."""
        counted = self.targets != IGNORE
        return counted.flip(1).int().cumsum(dim=1).flip(1) > 0

    @property
    def num_tokens(self) -> Tensor:
        return self.pad_mask.sum()


class PairBatch(NamedTuple):
    """Sources and what is to be written of them, one after the other.

    Attributes:
        source: (B, S) int64.
        source_mask: (B, S) bool, True = a real token.
        tokens: (B, T) int64, what the decoder reads: bos, then the target.
        targets: (B, T) int64, what it predicts: the target, then eos; `IGNORE` at pads.
        rows: (B,) int64, the places of the pairs in their split, where their references are found; -1 where nothing
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
    """Sequences and what is to be said of them.

    Attributes:
        inputs: (B, T) int64 tokens, or (B, T, F) features.
        pad_mask: (B, T) bool, True = a real token.
        targets: (B,) int64 classes, (B, T) int64 tags with `IGNORE` at pads; or float32, not a number where nothing
            counts: (B,) numbers, or 0 or 1 for each of C labels, (B, C), or for each frame's, (B, T, C).
        rows: (B,) int64, the places of the sequences in their split, -1 where nothing counts; None = unknown.
    """

    inputs: Tensor
    pad_mask: Tensor
    targets: Tensor
    rows: Tensor | None = None

    @property
    def num_tokens(self) -> Tensor:
        counted = self.pad_mask if self.rows is None else self.pad_mask & (self.rows >= 0)[:, None]
        return counted.sum()


def uncounted(batch: Any) -> Any:
    """A batch of these types as it is, but that nothing in it counts: its targets are `IGNORE`, or not a number, its
    amounts 0, its rows -1."""
    targets = torch.full_like(batch.targets, torch.nan if batch.targets.is_floating_point() else IGNORE)
    amounts = {name: value for name, value in batch._asdict().items() if name.startswith("num_") and value is not None}
    nothing = {name: torch.zeros_like(value) for name, value in amounts.items()}
    return batch._replace(targets=targets, rows=torch.full((len(targets),), -1), **nothing)
