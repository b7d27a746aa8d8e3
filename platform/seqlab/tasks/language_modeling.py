"""Language modelling (next-token prediction) and answering, its variant for questions with a known answer.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from seqlab.batch import IGNORE, TokenBatch
from seqlab.models import DecoderLM
from seqlab.nn.packing import Documents
from seqlab.tasks.large_vocabulary import Logits
from seqlab.tasks.metrics import LanguageModelingMetrics, Mean, MeanByLength
from seqlab.tasks.task import Task, check_told


class LanguageModeling(Task):
    """Trains a causal model on cross-entropy and reports loss, perplexity, bits per character and per byte, word
    perplexity and accuracy, and the loss by context length in tokens.

    Args:
        vocab_size: vocabulary size; set by the data module.
        seq_len: training sequence length in tokens; set by the data module.
        model: called with vocab_size and seq_len.
        z_loss: weight of the auxiliary loss log^2 Z, Z the softmax normaliser, used in training only; keeps logits
            small (Chowdhery et al. 2023, "PaLM", section 5: 1e-4).
        ahead_weight: weight of the mean loss of the model's `num_ahead` heads, in training only (DeepSeek-V3, equation
            25).
        optim: lr, optimizer, schedule and other options of `Task`.

    Raises:
        ValueError: a weight is below 0.
    """

    score_names: tuple[str, ...] = (
        *("loss", "perplexity", "accuracy", "bits_per_char", "bits_per_byte", "word_perplexity"),
        "loss_by_position/*",
    )

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        *,
        model: Callable[[int, int], nn.Module] = DecoderLM,
        z_loss: float = 0.0,
        ahead_weight: float = 0.3,
        **optim: Any,
    ) -> None:
        check_told("language modeling", vocab_size=vocab_size, seq_len=seq_len)
        super().__init__(model(vocab_size, seq_len), **optim)
        if not z_loss >= 0:
            raise ValueError(f"z_loss must be at least 0, got {z_loss}")
        if not ahead_weight >= 0:
            raise ValueError(f"ahead_weight must be at least 0, got {ahead_weight}")
        self.ahead_weight = ahead_weight
        self.seq_len = seq_len
        self.z_loss = z_loss

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        logits = self._logits(batch)
        total, count = logits.summed_nats(batch.targets, z_loss=self.z_loss)
        return total + self.nats_ahead(batch, logits), count

    def nats_ahead(self, batch: TokenBatch, logits: Logits) -> Tensor | float:
        """Weighted sum () of the losses of the heads that predict further tokens, for the logits of a batch."""
        heads = getattr(self.model, "ahead", None)
        if heads is None or not self.ahead_weight:
            return 0.0
        features = heads(logits.said).unbind(dim=-2)  # (B, T, D) each
        nats = [logits.of(x).summed_nats(further(batch, k))[0] for k, x in enumerate(features, start=1)]
        return self.ahead_weight * torch.stack(nats).mean()

    def losses(self, batch: TokenBatch) -> Tensor:
        return self._logits(batch).counted_nats(batch.targets)

    def scores(self, split: str) -> dict[str, Metric]:
        return {"text": LanguageModelingMetrics(), "loss_by_position": MeanByLength("loss_by_position", self.buckets)}

    def evaluate(self, batch: TokenBatch) -> dict[str, Any]:
        return self.evaluate_said(batch, *self._logits(batch).nats_and_best(batch.targets))

    def evaluate_said(self, batch: TokenBatch, nats: Tensor, best: Tensor) -> dict[str, Any]:
        """Score updates of a batch, from the nats of its targets and the likeliest tokens, (B, T) both."""
        num_bytes, num_words = (0 if some is None else some.sum() for some in (batch.num_bytes, batch.num_words))
        counted = batch.targets != IGNORE
        each, hits = nats[counted], best[counted] == batch.targets[counted]
        positions = torch.arange(1, counted.shape[1] + 1, device=counted.device).expand_as(counted)
        if batch.documents is not None:
            positions = Documents.of(batch.documents).positions + 1
        text = each.double().sum(), counted.sum(), batch.num_chars.sum(), hits.sum(), num_bytes, num_words
        return {"text": text, "loss_by_position": (each, positions[counted])}

    def predictions(self, batch: TokenBatch) -> list[dict[str, Any]]:
        """Predictions: "nats", the surprisal of each counted target."""
        nats, _ = self._logits(batch).nats_and_best(batch.targets)
        return [{"nats": row[counted].tolist()} for row, counted in zip(nats, batch.targets != IGNORE, strict=True)]

    def _logits(self, batch: TokenBatch) -> Logits:
        return logits_of(self.model, batch)


def further(batch: TokenBatch, places: int) -> Tensor:
    """Targets (B, T) so many places after those of a batch, `IGNORE` where a target does not count or the later one is
    beyond the row or document."""
    later = batch.targets.roll(-places, dims=1)
    beyond = batch.targets == IGNORE
    beyond[:, max(beyond.shape[1] - places, 0) :] = True
    if batch.documents is not None:
        beyond |= batch.documents.roll(-places, dims=1) != batch.documents
    return later.masked_fill(beyond, IGNORE)


def logits_of(model: nn.Module, batch: TokenBatch) -> Logits:
    """Logits of a causal model; documents of packed rows are read separately."""
    packed = {} if batch.documents is None else {"documents": batch.documents}
    return Logits(model, lambda **what: model(batch.tokens, **packed, **what)[0])


class Answering(LanguageModeling):
    """Language modelling with exact match: the share of examples in which every counted target is the likeliest token,
    overall and by length, counted in tokens up to the last such target. Where the answer ends the example, this is the
    share that greedy decoding answers exactly.

    Args:
        vocab_size: vocabulary size; set by the data module.
        seq_len: maximum example length in tokens; set by the data module.
        options: further options of `LanguageModeling`.
    """

    shown = ("loss", "exact_match")
    score_names = (*LanguageModeling.score_names, "exact_match", "exact_match_by_length/*")

    def scores(self, split: str) -> dict[str, Metric]:
        own = {"exact_match": Mean(), "exact_match_by_length": MeanByLength("exact_match_by_length", self.buckets)}
        return super().scores(split) | own

    def evaluate_said(self, batch: TokenBatch, nats: Tensor, best: Tensor) -> dict[str, Any]:
        counted = batch.targets != IGNORE
        # A rank with no example left in an epoch's last batch receives a row without counted targets.
        real = counted.any(dim=1)
        right = ((best == batch.targets) | ~counted).all(dim=1)[real].float()
        lengths = batch.pad_mask.sum(dim=1)[real]
        own = {"exact_match": right, "exact_match_by_length": (right, lengths)}
        return super().evaluate_said(batch, nats, best) | own

    def predictions(self, batch: TokenBatch) -> list[dict[str, Any]]:
        """Predictions: "answer", the likeliest token at each counted target, and "right", whether all are correct."""
        (_, best), counted = self._logits(batch).nats_and_best(batch.targets), batch.targets != IGNORE
        right = ((best == batch.targets) | ~counted).all(dim=1).tolist()
        rows = zip(best, counted, right, strict=True)
        return [{"answer": row[its].tolist(), "right": all_right} for row, its, all_right in rows]
