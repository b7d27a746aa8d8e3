"""Classification: which class a sequence is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.tasks.figures import confusion_matrix
from seqlab.tasks.length_buckets import MeanByLength
from seqlab.tasks.task import Task, check_told


class Classification(Task):
    """Trains on cross-entropy and reports loss, accuracy and macro F1, the accuracy by length too, and of the last
    validation the confusion matrix as a figure.

    Args:
        num_classes: number of classes; the data module tells it.
        seq_len: the longest input in tokens; the data module tells it.
        vocab_size, num_features: number of tokens, or of each one's features; the data module tells one of them.
        model: called with this number, num_classes and seq_len.
        label_smoothing: in training only (Szegedy et al. 2016).
        optim: lr, weight_decay, betas, warmup_steps and min_lr_ratio, as `Task` takes them.

    Raises:
        ValueError: data that tells no num_classes or neither of the two, or an option is out of range.
    """

    def __init__(
        self,
        num_classes: int,
        seq_len: int,
        *,
        vocab_size: int | None = None,
        num_features: int | None = None,
        model: Callable[[int, int, int], nn.Module],
        label_smoothing: float = 0.0,
        **optim: Any,
    ) -> None:
        size = vocab_size if num_features is None else num_features
        if size is None:
            raise ValueError("classification needs data that tells its vocab_size or its num_features, this tells none")
        check_told("classification", num_classes=num_classes, seq_len=seq_len)
        super().__init__(model(size, num_classes, seq_len), **optim)
        next_verb = "classify {run} < FILE" if num_features is None else "test {run}"
        self.next_command = f"seqlab {next_verb}"
        self.num_classes = num_classes
        self.seq_len = seq_len
        self.label_smoothing = label_smoothing
        self.loss = MeanMetric()
        self.metrics = MetricCollection(
            {
                "accuracy": MulticlassAccuracy(num_classes, average="micro", ignore_index=IGNORE),
                "f1": MulticlassF1Score(num_classes, average="macro", ignore_index=IGNORE),
            }
        )
        self.accuracy_by_length = MeanByLength()
        self.confusion = MulticlassConfusionMatrix(num_classes, ignore_index=IGNORE)
        self._last_confusion: Tensor | None = None

    def training_step(self, batch: LabelledBatch, batch_idx: int) -> Tensor:
        nats = F.cross_entropy(
            self._logits(batch), batch.targets, label_smoothing=self.label_smoothing, reduction="sum"
        )
        # A rank that has no text left in an epoch's last batch is given one whose class is ignored.
        loss = nats / (batch.targets != IGNORE).sum().clamp(min=1)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def on_fit_end(self) -> None:
        """Stores the last validation's confusion matrix as a figure."""
        log_text = getattr(self.logger, "log_text", None)
        if log_text is None or self._last_confusion is None:
            return
        log_text(confusion_matrix(self._last_confusion.cpu().numpy(), self._labels), "confusion.svg")

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """ "label", the likeliest class, and "probabilities" by the names of the classes."""
        probabilities = self._logits(batch).softmax(dim=-1)
        return [
            {"label": self._labels[best], "probabilities": dict(zip(self._labels, row, strict=True))}
            for best, row in zip(probabilities.argmax(dim=-1).tolist(), probabilities.tolist(), strict=True)
        ]

    @property
    def _labels(self) -> Sequence[str]:
        """The names of the classes, or their numbers where the data has no names."""
        numbers = [str(number) for number in range(self.num_classes)]
        return getattr(self.trainer.datamodule, "labels", numbers)  # type: ignore[attr-defined]

    def _logits(self, batch: LabelledBatch) -> Tensor:
        logits: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        return logits.float()

    def evaluate(self, batch: LabelledBatch) -> None:
        logits, targets = self._logits(batch), batch.targets
        counted = targets != IGNORE
        self.loss.update(F.cross_entropy(logits, targets, reduction="none")[counted])
        right = logits.argmax(dim=-1) == targets
        self.accuracy_by_length.update(right[counted], batch.pad_mask.sum(dim=1)[counted])
        self.metrics.update(logits, targets)
        self.confusion.update(logits, targets)

    def log_scores(self, stage: str) -> None:
        for name, value in {"loss": self.loss.compute(), **self.metrics.compute()}.items():
            self.log(f"{stage}/{name}", value, prog_bar=name in ("loss", "accuracy"))
        for name, value in self.accuracy_by_length.compute().items():
            self.log(f"{stage}/accuracy_by_length/{name}", value.float())
        self._last_confusion = self.confusion.compute()
