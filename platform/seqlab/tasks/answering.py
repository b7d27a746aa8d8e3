"""Answering: to continue a question whose right answer is known, as in the synthetic tasks."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchmetrics import MeanMetric

from seqlab.batch import IGNORE, TokenBatch
from seqlab.tasks.language_modeling import LanguageModeling
from seqlab.tasks.length_buckets import MeanByLength


class Answering(LanguageModeling):
    """Language modelling that is scored by whole examples too: the share in which every counted target is the
    likeliest, over all and by length, the tokens up to the last of these. Where the answer ends the example, this is
    the share that greedy decoding answers exactly.

    Args:
        vocab_size: number of tokens; the data module tells it.
        seq_len: the longest example in tokens; the data module tells it.
        options: as of `LanguageModeling`.
    """

    def __init__(self, vocab_size: int, seq_len: int, **options: Any) -> None:
        super().__init__(vocab_size, seq_len, **options)
        self.exact_match, self.exact_match_by_length = MeanMetric(), MeanByLength()

    def score(self, batch: TokenBatch, logits: Tensor) -> None:
        super().score(batch, logits)
        counted = batch.targets != IGNORE
        # A rank that has no example left in an epoch's last batch is given one of which nothing counts.
        real = counted.any(dim=1)
        right = ((logits.argmax(dim=-1) == batch.targets) | ~counted).all(dim=1)[real].float()
        lengths = batch.pad_mask.sum(dim=1)
        self.exact_match.update(right)
        self.exact_match_by_length.update(right, lengths[real])

    def predictions(self, batch: TokenBatch) -> list[dict[str, Any]]:
        """ "answer", the likeliest token of each target that counts."""
        best, counted = self._logits(batch).argmax(dim=-1), batch.targets != IGNORE
        return [{"answer": row[its].tolist()} for row, its in zip(best, counted, strict=True)]

    def log_scores(self, stage: str) -> None:
        super().log_scores(stage)
        self.log(f"{stage}/exact_match", self.exact_match.compute(), prog_bar=True)
        for name, value in self.exact_match_by_length.compute().items():
            self.log(f"{stage}/exact_match_by_length/{name}", value.float())
