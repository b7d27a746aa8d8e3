"""Tagging: assigns a class to each token of a sequence.

B batch, T length, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.nn.numerics import at_least_float32
from seqlab.tasks.entities import EntityScores, spell_entities
from seqlab.tasks.metrics import Mean, MeanByLength
from seqlab.tasks.task import Task, check_told, nats_and_hits, summed_nats


class Tagging(Task):
    """Trains on the cross-entropy of each real token's tag, and reports loss and token accuracy, the accuracy also by
    length. Where the labels are BIO tags, also reports precision, recall and F1 of the entities, as seqeval reads them.

    Args:
        vocab_size, num_classes: vocabulary size and number of tags; set by the data module.
        seq_len: maximum input length in tokens; set by the data module.
        model: called with these three.
        label_smoothing: label smoothing, used in training only (Szegedy et al. 2016).
        optim: lr, optimizer, schedule and other options of `Task`.
    """

    next_command = "seqlab classify {run} < FILE"
    shown = ("loss", "f1")
    score_names = ("loss", "accuracy", "precision", "recall", "f1", "accuracy_by_length/*", "f1_by_length/*")

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        seq_len: int,
        *,
        model: Callable[[int, int, int], nn.Module],
        label_smoothing: float = 0.0,
        **optim: Any,
    ) -> None:
        check_told("tagging", vocab_size=vocab_size, num_classes=num_classes, seq_len=seq_len)
        super().__init__(model(vocab_size, num_classes, seq_len), **optim)
        self.seq_len = seq_len
        self.label_smoothing = label_smoothing

    def loss(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        return summed_nats(self._logits(batch), batch.targets, self.label_smoothing)

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """Predictions: "tags", the likeliest tag of each token, and "right", whether each is correct."""
        best, real = self._logits(batch).argmax(dim=-1), batch.pad_mask
        rights = [row[counted].tolist() for row, counted in zip(best == batch.targets, real, strict=True)]
        return [{"tags": tags, "right": right} for tags, right in zip(self._tags(best, real), rights, strict=True)]

    def _logits(self, batch: LabelledBatch) -> Tensor:
        """Logits (B, T, C), in at least float32."""
        logits: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        return at_least_float32(logits)

    def scores(self, split: str) -> dict[str, Metric]:
        scores = {
            "loss": Mean(),
            "accuracy": Mean(),
            "accuracy_by_length": MeanByLength("accuracy_by_length", self.buckets),
        }
        return scores | ({"entities": EntityScores(self.buckets)} if spell_entities(self._labels) else {})

    def evaluate(self, batch: LabelledBatch) -> dict[str, Any]:
        logits, targets = self._logits(batch), batch.targets
        nats, hits = nats_and_hits(logits, targets)
        real = targets != IGNORE
        lengths = real.sum(dim=1, keepdim=True).expand_as(real)[real]  # (B, 1) to each of the N real tokens
        values: dict[str, Any] = {"loss": nats, "accuracy": hits, "accuracy_by_length": (hits, lengths)}
        if "entities" in self.scored:
            values["entities"] = self._tags(logits.argmax(dim=-1), real), self._tags(targets, real)
        return values

    @property
    def _labels(self) -> list[str]:
        labels: list[str] = self.trainer.datamodule.labels  # type: ignore[attr-defined]
        return labels

    def _tags(self, classes: Tensor, real: Tensor) -> list[list[str]]:
        """Class names of each sentence's real tokens, from class indices (B, T)."""
        return [
            [self._labels[place] for place in row[counted].tolist()]
            for row, counted in zip(classes.cpu(), real.cpu(), strict=True)
        ]
