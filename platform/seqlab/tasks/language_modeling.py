"""Language modelling: predict each next token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.batch import IGNORE, TokenBatch
from seqlab.models import DecoderLM
from seqlab.tasks.length_buckets import MeanByLength
from seqlab.tasks.metrics import LanguageModelingMetrics
from seqlab.tasks.task import Task, check_told


class LanguageModeling(Task):
    """Trains a causal model on cross-entropy and reports loss, perplexity, bits per character and per byte, word
    perplexity and accuracy, and the loss by the number of tokens that a prediction is made from.

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
        check_told("language modeling", vocab_size=vocab_size, seq_len=seq_len)
        super().__init__(model(vocab_size, seq_len), **optim)
        self.seq_len = seq_len
        self.metrics = LanguageModelingMetrics()
        self.loss_by_position = MeanByLength()

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        nats, num_tokens = self._nats(batch, self._logits(batch))
        loss = nats / num_tokens.clamp(min=1)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def predictions(self, batch: TokenBatch) -> list[dict[str, Any]]:
        """ "nats", the surprise of each target that counts."""
        nats = F.cross_entropy(self._logits(batch).transpose(1, 2), batch.targets, reduction="none")
        return [{"nats": row[counted].tolist()} for row, counted in zip(nats, batch.targets != IGNORE, strict=True)]

    def _logits(self, batch: TokenBatch) -> Tensor:
        """(B, T, V) float32."""
        logits: Tensor = self.model(batch.tokens)[0]
        return logits.float()

    def _nats(self, batch: TokenBatch, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The batch's summed cross-entropy and its number of targets, both ()."""
        nats = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return nats, (batch.targets != IGNORE).sum()

    def evaluate(self, batch: TokenBatch) -> None:
        self.score(batch, self._logits(batch))

    def score(self, batch: TokenBatch, logits: Tensor) -> None:
        """Adds a batch and its logits (B, T, V) to what is scored."""
        num_right = (logits.argmax(dim=-1) == batch.targets).sum()
        nats, num_tokens = self._nats(batch, logits)
        num_bytes, num_words = (0 if some is None else some.sum() for some in (batch.num_bytes, batch.num_words))
        self.metrics.update(nats, num_tokens, batch.num_chars.sum(), num_right, num_bytes, num_words)
        counted = batch.targets != IGNORE
        each = F.cross_entropy(logits[counted], batch.targets[counted], reduction="none")
        positions = torch.arange(1, batch.tokens.shape[1] + 1, device=each.device).expand_as(counted)
        self.loss_by_position.update(each, positions[counted])

    def log_scores(self, stage: str) -> None:
        for name, value in self.metrics.compute().items():
            self.log(f"{stage}/{name}", value.float(), prog_bar=name == "loss")
        for name, value in self.loss_by_position.compute().items():
            self.log(f"{stage}/loss_by_position/{name}", value.float())
