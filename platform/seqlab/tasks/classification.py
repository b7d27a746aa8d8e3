"""Classification: assigns a class to each sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.nn.numerics import at_least_float32
from seqlab.tasks.drawings import confusion_matrix
from seqlab.tasks.metrics import Mean, MeanByLength
from seqlab.tasks.task import Task, check_told, nats_and_hits, summed_nats


class Classification(Task):
    """Trains on cross-entropy and reports loss, accuracy, accuracy by length and macro F1. The confusion matrix of the
    last validation is stored as a figure.

    Args:
        num_classes: number of classes; set by the data module.
        seq_len: maximum input length in tokens; set by the data module.
        vocab_size, num_features: vocabulary size, or features per token; the data module sets one of them.
        model: called with whichever of these two is set, num_classes and seq_len.
        label_smoothing: label smoothing, used in training only (Szegedy et al. 2016).
        optim: lr, optimizer, schedule and other options of `Task`.

    Raises:
        ValueError: the data module sets no num_classes, or neither vocab_size nor num_features; or an option is out
            of range.
    """

    shown = ("loss", "accuracy")
    score_names = ("loss", "accuracy", "f1", "accuracy_by_length/*")

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
            raise ValueError("classification needs data with a vocab_size or num_features, but this data has neither")
        check_told("classification", num_classes=num_classes, seq_len=seq_len)
        super().__init__(model(size, num_classes, seq_len), **optim)
        next_verb = "classify {run} < FILE" if num_features is None else "test {run}"
        self.next_command = f"seqlab {next_verb}"
        self.num_classes = num_classes
        self.seq_len = seq_len
        self.label_smoothing = label_smoothing
        self._last_confusion: Tensor | None = None

    def loss(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        return summed_nats(self._logits(batch), batch.targets, self.label_smoothing)

    def scores(self, split: str) -> dict[str, Metric]:
        return {
            "loss": Mean(),
            "accuracy": MulticlassAccuracy(self.num_classes, average="micro", ignore_index=IGNORE),
            "f1": MulticlassF1Score(self.num_classes, average="macro", ignore_index=IGNORE),
            "accuracy_by_length": MeanByLength("accuracy_by_length", self.buckets),
            "confusion": MulticlassConfusionMatrix(self.num_classes, ignore_index=IGNORE),
        }

    def evaluate(self, batch: LabelledBatch) -> dict[str, Any]:
        logits, targets = self._logits(batch), batch.targets
        nats, hits = nats_and_hits(logits, targets)
        by_length, both = (hits, batch.pad_mask.sum(dim=1)[targets != IGNORE]), (logits, targets)
        return {"loss": nats, "accuracy": both, "f1": both, "accuracy_by_length": by_length, "confusion": both}

    def log_scores(self, split: str, found: dict[str, Any]) -> None:
        self._last_confusion = found.pop("confusion")
        super().log_scores(split, found)

    def on_fit_end(self) -> None:
        """Stores the confusion matrix of the last validation as a figure."""
        log_text = getattr(self.logger, "log_text", None)
        if log_text is not None and self._last_confusion is not None:
            log_text(confusion_matrix(self._last_confusion.cpu().numpy(), self._labels), "confusion.svg")

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """Predictions: "label", the likeliest class; "right", a bool; and "probabilities" by class name."""
        probabilities = self._logits(batch).softmax(dim=-1)
        best, targets = probabilities.argmax(dim=-1).tolist(), batch.targets.tolist()
        return [
            {
                "label": self._labels[it],
                "right": it == target,
                "probabilities": dict(zip(self._labels, row, strict=True)),
            }
            for it, target, row in zip(best, targets, probabilities.tolist(), strict=True)
        ]

    @property
    def _labels(self) -> Sequence[str]:
        """Class names, or class indices as strings where the data has no names."""
        numbers = [str(number) for number in range(self.num_classes)]
        return getattr(self.trainer.datamodule, "labels", numbers)  # type: ignore[attr-defined]

    def _logits(self, batch: LabelledBatch) -> Tensor:
        logits: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        return at_least_float32(logits)
