"""Multi-label classification of each frame of a sequence, or of the whole sequence.

B batch, T length, C labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import BinaryAveragePrecision, BinaryF1Score

from seqlab.batch import IGNORE, LabelledBatch
from seqlab.nn.numerics import at_least_float32
from seqlab.tasks.metrics import Mean, MeanByLength
from seqlab.tasks.task import Task, check_told


class MultilabelClassification(Task):
    """Trains on the binary cross-entropy averaged over all labels of all real frames. Reports this loss, F1 at a
    probability threshold of 0.5, both also by length, and average precision. `loss_per_frame` is the sum over the
    labels of a frame, or of a sequence with one set of labels, as papers print it (Boulanger-Lewandowski et al. 2012).

    The scores are micro-averaged over frames and labels, as is usual in music transcription (Bay et al. 2009;
    Thickstun et al. 2017, "MusicNet"). Average precision is exact, which requires keeping all probabilities of an
    evaluation in memory.

    Args:
        num_features, num_labels: numbers of features per frame and of labels; set by the data module.
        seq_len: maximum input length in frames; set by the data module.
        model: called with these three: a `Tagger` for per-frame labels, a `Classifier` for per-sequence labels.
        optim: lr, optimizer, schedule and other options of `Task`.
    """

    chooses_one = False
    next_command = "seqlab test {run}"
    shown = ("loss", "f1")
    score_names = ("loss", "loss_per_frame", "f1", "average_precision", "loss_by_length/*", "f1_by_length/*")

    def __init__(
        self,
        num_features: int,
        num_labels: int,
        seq_len: int,
        *,
        model: Callable[[int, int, int], nn.Module],
        **optim: Any,
    ) -> None:
        check_told("multi-label classification", num_features=num_features, num_labels=num_labels, seq_len=seq_len)
        super().__init__(model(num_features, num_labels, seq_len), **optim)
        self.seq_len = seq_len

    def loss(self, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        real = batch.targets.isfinite()  # padding has no target
        return (self._nats(batch, self._logits(batch)) * real).sum(), real.sum()

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """Predictions: "probabilities" of the labels, per real frame or per sequence, and the "nats" of the true
        labels, summed over the labels of a frame."""
        logits = self._logits(batch)
        nats = (self._nats(batch, logits) * batch.targets.isfinite()).sum(dim=-1)
        kept: Any = batch.pad_mask if batch.targets.ndim > 2 else [...] * len(logits)
        found = zip(logits.sigmoid(), nats, kept, strict=True)
        return [{"probabilities": some[real].tolist(), "nats": its[real].tolist()} for some, its, real in found]

    def _logits(self, batch: LabelledBatch) -> Tensor:
        """Logits in the shape of the targets, in at least float32.

        Raises:
            ValueError: the model returns another shape.
        """
        logits: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        if logits.shape != batch.targets.shape:
            raise ValueError(
                f"{type(self.model).__name__} gives {tuple(logits.shape)}, but the targets are "
                f"{tuple(batch.targets.shape)}; a Tagger labels each frame, a Classifier a whole sequence"
            )
        return at_least_float32(logits)

    def _nats(self, batch: LabelledBatch, logits: Tensor) -> Tensor:
        """Nats of each binary label, in the shape and dtype of the logits. Uncounted (NaN) targets are read as 0."""
        return F.binary_cross_entropy_with_logits(logits, batch.targets.nan_to_num().to(logits), reduction="none")

    def scores(self, split: str) -> dict[str, Metric]:
        return {
            "loss": Mean(),
            "loss_per_frame": Mean(),
            "f1": BinaryF1Score(ignore_index=IGNORE),
            "average_precision": BinaryAveragePrecision(ignore_index=IGNORE),
            "loss_by_length": MeanByLength("loss_by_length", self.buckets),
            "f1_by_length": MeanByLength("f1_by_length", self.buckets),
        }

    def evaluate(self, batch: LabelledBatch) -> dict[str, Any]:
        real, logits = batch.targets.isfinite(), self._logits(batch)
        # Unfiltered, because a process without real targets must still take part in gathering the average precision.
        both = logits.sigmoid(), batch.targets.nan_to_num(IGNORE).long()
        each = self._nats(batch, logits)
        # (B,) to (B, 1, ..) to each of the N labels that are real
        lengths = batch.pad_mask.sum(dim=1).view(-1, *[1] * (real.ndim - 1)).expand_as(real)[real]
        # F1 is the share of true positives when predicted labels and true labels are concatenated.
        predicted, true = logits[real] > 0, batch.targets[real] > 0.5
        either = torch.cat((predicted.nonzero(), true.nonzero())).squeeze(1)
        return {
            "loss": each[real],
            "loss_per_frame": (each * real).sum(dim=-1)[real.any(dim=-1)],
            "f1": both,
            "average_precision": both,
            "loss_by_length": (each[real], lengths),
            "f1_by_length": ((predicted & true)[either].float(), lengths[either]),
        }
