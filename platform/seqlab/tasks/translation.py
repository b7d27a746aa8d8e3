"""Sequence to sequence: write the target of a source.

B batch, T target length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MeanMetric

from seqlab.batch import IGNORE, PairBatch
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.tasks.length_buckets import NAMES, bucket
from seqlab.tasks.ranks import of_all_ranks
from seqlab.tasks.scheduled_sampling import ScheduledSampling
from seqlab.tasks.task import Task, check_told
from seqlab.tasks.text_scores import score_texts


class Written(NamedTuple):
    """What was written of a source, and the tokens of the source, eos included."""

    text: str
    source_len: int


class Translation(Task):
    """Trains on the cross-entropy of each target token after the true ones before it (teacher forcing), and scores the
    greedy text of the validation and test sources: BLEU, by the length of the source too, chrF and exact match, beside
    loss and token accuracy.

    Args:
        vocab_size, target_vocab_size: numbers of tokens of both sides; the data module tells them.
        seq_len: the longest source and target in tokens; the data module tells it.
        model: called with these three.
        label_smoothing: in training only (Szegedy et al. 2016).
        bleu_tokenize: sacrebleu's tokenizer.
        sampling: makes the decoder read some of its own tokens in training; None = always the true ones.
        optim: lr, weight_decay, betas, warmup_steps and min_lr_ratio, as `Task` takes them.
    """

    next_command = "seqlab translate {run} < FILE"

    def __init__(
        self,
        vocab_size: int,
        target_vocab_size: int,
        seq_len: int,
        *,
        model: Callable[[int, int, int], nn.Module],
        label_smoothing: float = 0.0,
        bleu_tokenize: str = "13a",
        sampling: Callable[[], ScheduledSampling] | None = None,
        **optim: Any,
    ) -> None:
        check_told("translation", vocab_size=vocab_size, target_vocab_size=target_vocab_size, seq_len=seq_len)
        super().__init__(model(vocab_size, target_vocab_size, seq_len), **optim)
        self.model: Any
        self.seq_len = seq_len
        self.label_smoothing = label_smoothing
        self.bleu_tokenize = bleu_tokenize
        self.sampling = sampling and sampling()
        self.loss, self.accuracy = MeanMetric(), MeanMetric()
        self._written: dict[int, Written] = {}

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        nats = F.cross_entropy(
            self._logits(batch, self.sampling).flatten(0, 1),
            batch.targets.flatten(),
            ignore_index=IGNORE,
            label_smoothing=self.label_smoothing,
            reduction="sum",
        )
        # A rank that has no pair left in an epoch's last batch is given one of which nothing counts.
        loss = nats / (batch.targets != IGNORE).sum().clamp(min=1)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def predictions(self, batch: PairBatch) -> list[dict[str, Any]]:
        """ "text", what is written greedily."""
        return [{"text": text} for text in self.write(batch)]

    def write(self, batch: PairBatch) -> list[str]:
        """The greedy text of each source."""
        tokenizer = self.trainer.datamodule.tokenizer  # type: ignore[attr-defined]
        decoder = TorchDecoder(self.model, self.model.begin(batch.source, batch.source_mask))
        prompts = [[tokenizer.bos_id]] * len(batch.source)
        written = generate(decoder, prompts, max_new_tokens=self.seq_len, stop_ids=(tokenizer.eos_id,))
        return [tokenizer.decode(tokens) for tokens in written]

    def _logits(self, batch: PairBatch, sampling: ScheduledSampling | None = None) -> Tensor:
        """(B, T, V) float32, of every target token after the true ones, or after some of the model's own."""
        state = self.model.begin(batch.source, batch.source_mask)
        tokens = batch.tokens
        if sampling is not None:
            tokens = sampling.tokens(self.model, batch, state, self.global_step / (self._total_steps() or math.inf))
        logits: Tensor = self.model(tokens, state, pad_mask=batch.targets != IGNORE)[0]
        return logits.float()

    def evaluate(self, batch: PairBatch) -> None:
        real = batch.targets != IGNORE
        logits, targets = self._logits(batch)[real], batch.targets[real]
        self.loss.update(F.cross_entropy(logits, targets, reduction="none"))
        self.accuracy.update((logits.argmax(dim=-1) == targets).float())
        lengths = batch.source_mask.sum(dim=1)
        found = zip(batch.rows.tolist(), map(Written, self.write(batch), lengths.tolist()), strict=True)
        self._written |= {row: written for row, written in found if row >= 0}

    def log_scores(self, stage: str) -> None:
        loss = self.loss.compute()
        written = {row: text for some in of_all_ranks(self._written) for row, text in some.items()}
        scores = {"loss": loss, "perplexity": loss.exp(), "token_accuracy": self.accuracy.compute()}
        references = self.trainer.datamodule.references(stage)  # type: ignore[attr-defined]

        def score(rows: list[int]) -> tuple[dict[str, float], dict[str, str]]:
            texts = [written[row].text for row in rows]
            return score_texts(texts, [references[row] for row in rows], tokenize=self.bleu_tokenize)

        measured, signatures = score(sorted(written))
        places = bucket(torch.tensor([written[row].source_len for row in sorted(written)])).tolist()
        for place in sorted(set(places)):
            rows = [row for row, its in zip(sorted(written), places, strict=True) if its == place]
            self.log(f"{stage}/bleu_by_length/{NAMES[place]}", score(rows)[0]["bleu"])
        for name, value in (scores | measured).items():
            self.log(f"{stage}/{name}", torch.as_tensor(value, dtype=torch.float32), prog_bar=name in ("loss", "bleu"))
        if (log_tags := getattr(self.logger, "log_tags", None)) is not None:
            log_tags({f"signature.{name}": signature for name, signature in signatures.items()})

    def forget(self) -> None:
        super().forget()
        self._written.clear()
