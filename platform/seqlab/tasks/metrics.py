"""Language-modelling metrics as one torchmetrics Metric."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchmetrics import Metric


class LanguageModelingMetrics(Metric):
    """Loss in nats a token, perplexity exp(loss), bits per character of the source text, and accuracy: the share of
    tokens that are the likeliest.

    Bits per character = total nats / ln 2 / characters, whatever the tokenizer. Sums are float64 and are reduced over
    devices, so the result is the corpus's, not a mean of batch means.
    """

    full_state_update = False
    nats: Tensor
    num_tokens: Tensor
    num_chars: Tensor
    num_right: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("nats", "num_tokens", "num_chars", "num_right"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, nats: Tensor, num_tokens: Tensor, num_chars: Tensor, num_right: Tensor) -> None:
        """Adds a batch: its summed cross-entropy, how many tokens and characters it stands for, and how many tokens
        were the likeliest; all ()."""
        self.nats += nats
        self.num_tokens += num_tokens
        self.num_chars += num_chars
        self.num_right += num_right

    def compute(self) -> dict[str, Tensor]:
        loss = self.nats / self.num_tokens
        return {
            "loss": loss,
            "perplexity": loss.exp(),
            "accuracy": self.num_right / self.num_tokens,
            "bits_per_char": self.nats / math.log(2) / self.num_chars,
        }
