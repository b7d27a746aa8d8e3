"""Masked language modelling: predict the tokens that were masked.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

from seqlab.batch import IGNORE, TokenBatch, alone
from seqlab.models import MaskedLM
from seqlab.tasks.large_vocabulary import Logits
from seqlab.tasks.metrics import Mean, MeanByLength, Perplexity
from seqlab.tasks.task import Task, check_told

_rand = partial(torch.rand, dtype=torch.float32)
"""Random draws, always in float32: half precision has too few values to cover the vocabulary."""


class Masked(NamedTuple):
    """Model inputs tokens (B, T); targets (B, T), the original chosen tokens, `IGNORE` elsewhere; and pad_mask (B, T)
    bool, True = a real token."""

    tokens: Tensor
    targets: Tensor
    pad_mask: Tensor


class MaskedLanguageModeling(Task):
    """Trains on the cross-entropy of masked tokens, drawn anew for each batch (Devlin et al. 2019, "BERT", section
    3.1). Reports loss, loss by position, perplexity and accuracy on masks that are the same in every validation.

    Args:
        vocab_size: vocabulary size; set by the data module.
        seq_len: training sequence length in tokens; set by the data module.
        model: called with vocab_size and seq_len.
        share: share of tokens chosen for prediction, above 0 and at most 1.
        optim: lr, optimizer, schedule and other options of `Task`.

    Raises:
        ValueError: `share` is not above 0 and at most 1.
    """

    next_command = "seqlab compare"
    shown = ("loss", "accuracy")
    score_names = ("loss", "perplexity", "accuracy", "loss_by_position/*")

    def __init__(
        self,
        vocab_size: int,
        seq_len: int,
        *,
        model: Callable[[int, int], MaskedLM],
        share: float = 0.15,
        **optim: Any,
    ) -> None:
        check_told("masked language modeling", vocab_size=vocab_size, seq_len=seq_len)
        super().__init__(model(vocab_size, seq_len), **optim)
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {share}")
        self.model: Any
        self.seq_len = seq_len
        self.share = share

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        masked = self.masked(alone(batch))
        return self._logits(masked).summed_nats(masked.targets)

    def predictions(self, batch: TokenBatch) -> list[dict[str, Any]]:
        """Predictions for the tokens that a validation masks: their "positions" in the row, the likeliest "tokens",
        and the "nats" of the true tokens."""
        batch = alone(batch)
        masked = self.masked(batch, _draws_of(batch.tokens, batch.pad_mask))
        nats, likeliest = self._logits(masked).nats_and_best(masked.targets)
        found = zip(masked.targets != IGNORE, likeliest, nats, strict=True)
        return [
            {"positions": its.nonzero()[:, 0].tolist(), "tokens": best[its].tolist(), "nats": row[its].tolist()}
            for its, best, row in found
        ]

    def scores(self, split: str) -> dict[str, Metric]:
        return {
            "loss": Mean(),
            "perplexity": Perplexity(),
            "accuracy": Mean(),
            "loss_by_position": MeanByLength("loss_by_position", self.buckets),
        }

    def evaluate(self, batch: TokenBatch) -> dict[str, Any]:
        batch = alone(batch)
        masked = self.masked(batch, _draws_of(batch.tokens, batch.pad_mask))
        nats, best = self._logits(masked).nats_and_best(masked.targets)
        chosen = masked.targets != IGNORE
        nats, hits, positions = nats[chosen], best[chosen] == masked.targets[chosen], chosen.nonzero()[:, 1] + 1
        return {"loss": nats, "perplexity": nats, "accuracy": hits, "loss_by_position": (nats, positions)}

    def _logits(self, masked: Masked) -> Logits:
        return Logits(self.model, lambda **what: self.model(masked.tokens, pad_mask=masked.pad_mask, **what))

    def masked(self, batch: TokenBatch, draws: Tensor | None = None) -> Masked:
        """Chooses some of the counted tokens: 80% of them are masked, 10% become a random token, and 10% stay.

        Args:
            draws: random numbers (3, B, T) in [0, 1) that make the choices; None = new draws.
        """
        tokens = batch.tokens
        choice, fate, other = _rand(3, *tokens.shape, device=tokens.device) if draws is None else draws
        chosen = (choice < self.share) & (batch.targets != IGNORE)
        others = (other * self.model.mask_id).long()
        read = torch.where(fate < 0.8, self.model.mask_id, torch.where(fate < 0.9, others, tokens))
        return Masked(torch.where(chosen, read, tokens), tokens.masked_fill(~chosen, IGNORE), batch.pad_mask)


def _draws_of(tokens: Tensor, pad_mask: Tensor) -> Tensor:
    """Random numbers (3, B, T) in [0, 1), seeded by each row of tokens (B, T), 0 at padding. A row's draws are the same
    on every device and in every batch."""
    places = torch.arange(1, tokens.shape[1] + 1)
    seeds = (tokens.cpu() * places * pad_mask.cpu()).sum(dim=1).tolist()
    lengths = pad_mask.sum(dim=1).tolist()
    rows = [
        F.pad(_rand(3, length, generator=torch.Generator().manual_seed(seed)), (0, tokens.shape[1] - length))
        for seed, length in zip(seeds, lengths, strict=True)
    ]
    return torch.stack(rows, dim=1).to(tokens.device)
