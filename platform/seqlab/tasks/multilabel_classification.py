"""Multi-label classification: which labels hold for each frame of a sequence, or for all of it.

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
    """Trains on the mean binary cross-entropy of every label of every real frame, and reports it and F1 at a
    probability of 0.5, both by length too, beside average precision. `loss_per_frame` is the sum over a frame's labels
    (of a whole sequence's, where it has one set), as papers print it (Boulanger-Lewandowski et al. 2012).

    The scores are micro-averaged, over frames and labels together, as transcriptions of music are scored (Bay et al.
    2009; Thickstun et al. 2017, "MusicNet"). The average precision is exact, for which all probabilities of an
    evaluation are kept.

    Args:
        num_features, num_labels: numbers of features of a frame and of labels; the data module tells them.
        seq_len: the longest input in frames; the data module tells it.
        model: called with these three: a `Tagger` for labels of each frame, a `Classifier` for those of sequences.
        optim: lr, optimizer, schedule and the like, as `Task` takes them.
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
        real = batch.targets.isfinite()  # pads have no target
        return (self._nats(batch, self._logits(batch)) * real).sum(), real.sum()

    def predictions(self, batch: LabelledBatch) -> list[dict[str, Any]]:
        """ "probabilities" of the labels, of each real frame where frames have their own, and the "nats" of the right
        ones, each frame's labels together."""
        logits = self._logits(batch)
        nats = (self._nats(batch, logits) * batch.targets.isfinite()).sum(dim=-1)
        kept: Any = batch.pad_mask if batch.targets.ndim > 2 else [...] * len(logits)
        found = zip(logits.sigmoid(), nats, kept, strict=True)
        return [{"probabilities": some[real].tolist(), "nats": its[real].tolist()} for some, its, real in found]

    def _logits(self, batch: LabelledBatch) -> Tensor:
        """Logits of the targets' shape, in at least float32.

        Raises:
            ValueError: the model gives another shape.
        """
        logits: Tensor = self.model(batch.inputs, pad_mask=batch.pad_mask)
        if logits.shape != batch.targets.shape:
            raise ValueError(
                f"{type(self.model).__name__} gives {tuple(logits.shape)}, but the targets are "
                f"{tuple(batch.targets.shape)}; a Tagger labels each frame, a Classifier a whole sequence"
            )
        return at_least_float32(logits)

    def _nats(self, batch: LabelledBatch, logits: Tensor) -> Tensor:
        """The nats of each label, 0 or 1, or taken as 0 where nothing counts; of the logits' shape and dtype."""
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
        # All of it, as a process that has nothing to add must take its part in putting the average precision together.
        both = logits.sigmoid(), batch.targets.nan_to_num(IGNORE).long()
        each = self._nats(batch, logits)
        # (B,) to (B, 1, ..) to each of the N labels that are real
        lengths = batch.pad_mask.sum(dim=1).view(-1, *[1] * (real.ndim - 1)).expand_as(real)[real]
        # F1 is the share of hits among the labels that were predicted and those that are true, put together.
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
