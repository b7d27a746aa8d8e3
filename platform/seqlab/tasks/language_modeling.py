"""Language modelling: predict each next token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.batch import IGNORE, TokenBatch
from seqlab.models import DecoderLM
from seqlab.tasks.metrics import LanguageModelingMetrics
from seqlab.tasks.task import Task


class LanguageModeling(Task):
    """Trains a causal model on cross-entropy and reports loss, perplexity, bits per character and accuracy.

    Args:
        vocab_size: number of tokens; the data module tells it.
        seq_len: training length in tokens; the data module tells it.
        model: called with vocab_size and seq_len.
        optim: lr, weight_decay, betas, warmup_steps and min_lr_ratio, as `Task` takes them.
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        *,
        model: Callable[[int, int], nn.Module] = DecoderLM,
        **optim: Any,
    ) -> None:
        super().__init__(model(vocab_size, seq_len), **optim)
        self.seq_len = seq_len
        self.val_metrics = LanguageModelingMetrics()
        self.test_metrics = LanguageModelingMetrics()

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        nats, num_tokens = self._nats(batch, self._logits(batch))
        loss = nats / num_tokens.clamp(min=1)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self._evaluate(batch, self.val_metrics)

    def on_validation_epoch_end(self) -> None:
        self._log_metrics("val", self.val_metrics)

    def test_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self._evaluate(batch, self.test_metrics)

    def on_test_epoch_end(self) -> None:
        self._log_metrics("test", self.test_metrics)

    def predict_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        """(B, T) float32: the surprise of each target in nats, 0 where it is ignored."""
        logits = self._logits(batch).transpose(1, 2)
        return F.cross_entropy(logits, batch.targets, ignore_index=IGNORE, reduction="none")

    def _logits(self, batch: TokenBatch) -> Tensor:
        """(B, T, V) float32."""
        logits: Tensor = self.model(batch.tokens)[0]
        return logits.float()

    def _nats(self, batch: TokenBatch, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The batch's summed cross-entropy and its number of targets, both ()."""
        nats = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return nats, (batch.targets != IGNORE).sum()

    def _evaluate(self, batch: TokenBatch, metrics: LanguageModelingMetrics) -> None:
        logits = self._logits(batch)
        num_right = (logits.argmax(dim=-1) == batch.targets).sum()
        metrics.update(*self._nats(batch, logits), batch.num_chars.sum(), num_right)

    def _log_metrics(self, stage: str, metrics: LanguageModelingMetrics) -> None:
        for name, value in metrics.compute().items():
            self.log(f"{stage}/{name}", value.float(), prog_bar=name == "loss")
        metrics.reset()
