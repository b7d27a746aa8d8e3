"""Sequence-to-sequence: generates a target from a source.

B batch, T target length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from seqlab.batch import IGNORE, PairBatch
from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.parallel import gathered
from seqlab.tasks.large_vocabulary import Logits
from seqlab.tasks.metrics import Mean, Perplexity
from seqlab.tasks.scheduled_sampling import ScheduledSampling
from seqlab.tasks.task import Task, check_told
from seqlab.tasks.text_scores import TextScores


class Translation(Task):
    """Trains on the cross-entropy of the target tokens with teacher forcing. Reports loss, perplexity and token
    accuracy. Decodes validation and test sources greedily and scores them by BLEU, overall and by source length, chrF
    and exact match.

    Args:
        vocab_size, target_vocab_size: vocabulary sizes of source and target; set by the data module.
        seq_len: maximum source and target length in tokens; set by the data module.
        model: called with these three.
        label_smoothing: label smoothing, used in training only (Szegedy et al. 2016).
        bleu_tokenize: sacrebleu's tokenizer for BLEU.
        sampling: scheduled sampling, in which the decoder reads some of its own tokens; None = teacher forcing only.
        optim: lr, optimizer, schedule and other options of `Task`.
    """

    next_command = "seqlab translate {run} < FILE"
    shown = ("loss", "bleu")
    score_names = ("loss", "perplexity", "token_accuracy", "bleu", "chrf", "exact_match", "bleu_by_length/*")

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

    def loss(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        return self._logits(batch, self.sampling).summed_nats(batch.targets, self.label_smoothing)

    def losses(self, batch: PairBatch) -> Tensor:
        return self._logits(batch).counted_nats(batch.targets)

    def predictions(self, batch: PairBatch) -> list[dict[str, Any]]:
        """Predictions: "text", decoded greedily, and its "references"."""
        references = self.trainer.datamodule.references("test")  # type: ignore[attr-defined]
        texts = zip(self.write(batch), batch.rows.tolist(), strict=True)
        return [{"text": text, "references": list(references[row])} for text, row in texts]

    def write(self, batch: PairBatch) -> list[str]:
        """Greedily decoded text of each source."""
        tokenizer = self.trainer.datamodule.tokenizer  # type: ignore[attr-defined]
        prompts = [[tokenizer.bos_id]] * len(batch.source)
        with gathered(self.model):
            decoder = TorchDecoder(self.model, self.model.begin(batch.source, batch.source_mask))
            written = generate(decoder, prompts, max_new_tokens=self.seq_len, stop_ids=(tokenizer.eos_id,))
        return [tokenizer.decode(tokens) for tokens in written]

    def _logits(self, batch: PairBatch, sampling: ScheduledSampling | None = None) -> Logits:
        """Logits of every target token, given the true tokens before it or, with `sampling`, some sampled ones."""
        state = self.model.begin(batch.source, batch.source_mask)
        tokens = batch.tokens
        if sampling is not None:
            progress = self.global_step / (self._total_steps() or math.inf)
            with gathered(self.model):
                tokens = sampling.tokens(self.model, batch, state, progress)
        real = batch.targets != IGNORE
        return Logits(self.model, lambda **what: self.model(tokens, state, pad_mask=real, **what)[0])

    def scores(self, split: str) -> dict[str, Metric]:
        references = self.trainer.datamodule.references(split)  # type: ignore[attr-defined]
        return {
            "loss": Mean(),
            "perplexity": Perplexity(),
            "token_accuracy": Mean(),
            "text": TextScores(references, self.bleu_tokenize, self.buckets),
        }

    def evaluate(self, batch: PairBatch) -> dict[str, Any]:
        nats, best = self._logits(batch).nats_and_best(batch.targets)
        real = batch.targets != IGNORE
        nats, hits = nats[real], best[real] == batch.targets[real]
        lengths = batch.source_mask.sum(dim=1)
        return {
            "loss": nats,
            "perplexity": nats,
            "token_accuracy": hits,
            "text": (batch.rows.tolist(), self.write(batch), lengths.tolist()),
        }

    def log_scores(self, split: str, found: dict[str, Any]) -> None:
        super().log_scores(split, found)
        text = self.scored["text"]
        assert isinstance(text, TextScores)
        if (log_tags := getattr(self.logger, "log_tags", None)) is not None:
            log_tags({f"signature.{name}": signature for name, signature in text.signatures.items()})
