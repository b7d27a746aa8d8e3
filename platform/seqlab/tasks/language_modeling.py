"""Language modelling: predict each next token."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lightning as L
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.batch import IGNORE, TokenBatch
from seqlab.models import DecoderLM
from seqlab.tasks.metrics import LanguageModelingMetrics
from seqlab.tasks.optim import adamw, scheduled


class LanguageModeling(L.LightningModule):
    """Trains a causal model on cross-entropy and reports loss, perplexity and bits per character.

    Args:
        vocab_size: number of tokens; the data module tells it.
        seq_len: training length in tokens; the data module tells it.
        model: called with vocab_size and seq_len.
        lr: peak learning rate of AdamW.
        weight_decay: on matrices and embeddings only.
        betas: AdamW's moment decay rates.
        warmup_steps: optimiser steps of linear warm-up; a cosine follows.
        min_lr_ratio: where the cosine ends, as a fraction of lr.
    """

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        *,
        model: Callable[[int, int], nn.Module] = DecoderLM,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.99),
        warmup_steps: int = 100,
        min_lr_ratio: float = 0.1,
    ) -> None:
        super().__init__()
        if lr <= 0 or warmup_steps < 0 or not 0 <= min_lr_ratio <= 1:
            raise ValueError(
                f"lr must be positive, warmup_steps at least 0 and min_lr_ratio in [0, 1]; got {lr}, "
                f"{warmup_steps} and {min_lr_ratio}"
            )
        self.seq_len = seq_len
        self.model = model(vocab_size, seq_len)
        self.lr = lr
        self.weight_decay = weight_decay
        self.betas = betas
        self.warmup_steps = warmup_steps
        self.min_lr_ratio = min_lr_ratio
        self.val_metrics = LanguageModelingMetrics()
        self.test_metrics = LanguageModelingMetrics()

    def training_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        nats, num_tokens = self._nats(batch)
        loss = nats / num_tokens.clamp(min=1)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self.val_metrics.update(*self._nats(batch), batch.num_chars.sum())

    def on_validation_epoch_end(self) -> None:
        self._log_metrics("val", self.val_metrics)

    def test_step(self, batch: TokenBatch, batch_idx: int) -> None:
        self.test_metrics.update(*self._nats(batch), batch.num_chars.sum())

    def on_test_epoch_end(self) -> None:
        self._log_metrics("test", self.test_metrics)

    def predict_step(self, batch: TokenBatch, batch_idx: int) -> Tensor:
        """(B, T) float32: the surprise of each target in nats, 0 where it is ignored."""
        logits, _ = self.model(batch.tokens)
        return F.cross_entropy(logits.float().transpose(1, 2), batch.targets, ignore_index=IGNORE, reduction="none")

    def configure_optimizers(self) -> Any:
        optimizer = adamw(self.model, lr=self.lr, weight_decay=self.weight_decay, betas=self.betas)
        scheduler = scheduled(
            optimizer,
            warmup_steps=self.warmup_steps,
            total_steps=self._total_steps(),
            min_ratio=self.min_lr_ratio,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _nats(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """The batch's summed cross-entropy and its number of targets, both ()."""
        logits, _ = self.model(batch.tokens)
        nats = F.cross_entropy(
            logits.float().flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="sum"
        )
        return nats, (batch.targets != IGNORE).sum()

    def _log_metrics(self, stage: str, metrics: LanguageModelingMetrics) -> None:
        for name, value in metrics.compute().items():
            self.log(f"{stage}/{name}", value.float(), prog_bar=name == "loss")
        metrics.reset()

    def _total_steps(self) -> int | None:
        """Optimiser steps of the whole fit; None where nothing but time ends it.

        Lightning's `estimated_stepping_batches` would build the data loaders before their state is restored.
        """
        trainer = self.trainer
        max_steps = None if trainer.max_steps == -1 else trainer.max_steps
        if trainer.max_epochs in (None, -1) or trainer.datamodule is None:  # type: ignore[attr-defined]
            return max_steps
        num_batches = len(trainer.datamodule.train_dataloader())  # type: ignore[attr-defined]
        limit = trainer.limit_train_batches
        num_batches = min(num_batches, limit) if isinstance(limit, int) else int(num_batches * limit)
        assert trainer.max_epochs is not None
        in_epochs = trainer.max_epochs * math.ceil(num_batches / trainer.accumulate_grad_batches)
        return in_epochs if max_steps is None else min(in_epochs, max_steps)
