"""Tagging: which class each token of a sequence is of.

B batch, T length, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MeanMetric

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.tasks.entities import EntityScores, spell_entities
from seqlab.tasks.length_buckets import MeanByLength
from seqlab.tasks.task import Task, check_told


class Tagging(Task):
    """Trains on the cross-entropy of each real token's tag, and reports loss and token accuracy, by length too;
    where the data's labels are BIO tags, also precision, recall and F1 of the entities, as seqeval reads them.

    Args:
        vocab_size, num_classes: numbers of tokens and of tags; the data module tells them.
        seq_len: the longest input in tokens; the data module tells it.
        model: called with these three.
        label_smoothing: in training only (Szegedy et al. 2016).
        optim: lr, weight_decay, betas, warmup_steps and min_lr_ratio, as `Task` takes them.
    """

    next_command = "seqlab classify {run} < FILE"

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
        self.loss, self.accuracy, self.entities = MeanMetric(), MeanMetric(), EntityScores()
        self.accuracy_by_length = MeanByLength()

    def training_step(self, batch: LabelledBatch, batch_idx: int) -> Tensor:
        nats = F.cross_entropy(
            self._logits(batch).flatten(0, 1),
            batch.targets.flatten(),
            ignore_index=IGNORE,
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )
        # A rank that has no sentence left in an epoch's last batch is given one whose tags are ignored.
        loss = nats / (batch.targets != IGNORE).sum().clamp(min=1)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """ "tags", the likeliest of each token."""
        return [{"tags": tags} for tags in self._tags(self._logits(batch).argmax(dim=-1), batch.pad_mask)]

    def _logits(self, batch: LabelledBatch) -> Tensor:
        """(B, T, C) float32."""
        logits: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        return logits.float()

    def evaluate(self, batch: LabelledBatch) -> None:
        logits, targets = self._logits(batch), batch.targets
        real, predicted = targets != IGNORE, logits.argmax(dim=-1)
        self.loss.update(F.cross_entropy(logits[real], targets[real], reduction="none"))
        right = (predicted == targets)[real].float()
        self.accuracy.update(right)
        self.accuracy_by_length.update(right, real.sum(dim=1, keepdim=True).expand_as(real)[real])
        if spell_entities(self._labels):
            self.entities.update(self._tags(predicted, real), self._tags(targets, real))

    def log_scores(self, stage: str) -> None:
        scores = {"loss": self.loss.compute(), "accuracy": self.accuracy.compute()}
        if spell_entities(self._labels):
            scores |= self.entities.compute()
        for name, value in scores.items():
            self.log(f"{stage}/{name}", value, prog_bar=name in ("loss", "f1"))
        for name, value in self.accuracy_by_length.compute().items():
            self.log(f"{stage}/accuracy_by_length/{name}", value.float())

    @property
    def _labels(self) -> list[str]:
        labels: list[str] = self.trainer.datamodule.labels  # type: ignore[attr-defined]
        return labels

    def _tags(self, classes: Tensor, real: Tensor) -> list[list[str]]:
        """The names of the classes (B, T) of each sentence's real tokens."""
        return [
            [self._labels[place] for place in row[counted].tolist()]
            for row, counted in zip(classes.cpu(), real.cpu(), strict=True)
        ]
