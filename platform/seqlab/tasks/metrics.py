"""Language-modelling metrics as one torchmetrics Metric."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics import Metric


class LanguageModelingMetrics(Metric):
    """Loss in nats a token, perplexity exp(loss), and accuracy: the share of tokens that are the likeliest. Of the
    source text, whatever the tokenizer: bits per character and per byte, total nats / ln 2 / characters, and word
    perplexity, exp(total nats / words), a newline being a word; each where the amount is known.

    Sums are float64 and are reduced over
    devices, so the result is the corpus's, not a mean of batch means.
    """

    full_state_update = False
    nats: Tensor
    num_tokens: Tensor
    num_chars: Tensor
    num_right: Tensor
    num_bytes: Tensor
    num_words: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("nats", "num_tokens", "num_chars", "num_right", "num_bytes", "num_words"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(
        self,
        nats: Tensor,
        num_tokens: Tensor,
        num_chars: Tensor,
        num_right: Tensor,
        num_bytes: Tensor | int = 0,
        num_words: Tensor | int = 0,
    ) -> None:
        """Adds a batch: its summed cross-entropy, how many tokens and characters it stands for, how many tokens were
        the likeliest, how many bytes and words it stands for; all ()."""
        self.nats += nats
        self.num_tokens += num_tokens
        self.num_chars += num_chars
        self.num_right += num_right
        self.num_bytes += num_bytes
        self.num_words += num_words

    def compute(self) -> dict[str, Tensor]:
        loss = self.nats / self.num_tokens
        scores = {
            "loss": loss,
            "perplexity": loss.exp(),
            "accuracy": self.num_right / self.num_tokens,
            "bits_per_char": self.nats / math.log(2) / self.num_chars,
        }
        if self.num_bytes:
            scores["bits_per_byte"] = self.nats / math.log(2) / self.num_bytes
        if self.num_words:
            scores["word_perplexity"] = (self.nats / self.num_words).exp()
        return scores
