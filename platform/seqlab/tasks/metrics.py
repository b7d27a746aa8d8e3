"""Metrics of tasks, as torchmetrics; by length, from 1 to 8, 9 to 16, 17 to 32 and so on, or by each length.

N values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torchmetrics import Metric


class Buckets:
    """Buckets of lengths that are scored together.

    Args:
        bounds: the greatest length of each bucket, in ascending order; the last bucket is of all beyond.

    Attributes:
        names: of the buckets, as 9-16, 9 or over 1024.
    """

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = tuple(bounds)
        ranges = ((low + 1, high) for low, high in pairwise((0, *bounds)))
        names = (f"{low}-{high}" if low < high else f"{high}" for low, high in ranges)
        self.names = (*names, f"over {self.bounds[-1]}")

    def places(self, lengths: Tensor) -> Tensor:
        """Lengths (N,) from 1 on to places in `names`, (N,)."""
        return torch.bucketize(lengths, torch.tensor(self.bounds, device=lengths.device))


RANGES, EACH = Buckets([8, 16, 32, 64, 128, 256, 512, 1024]), Buckets(range(1, 1025))


class MeanByLength(Metric):
    """The mean of the values of each bucket of lengths, since length is where models differ. Sums are float64 and are
    reduced over devices.

    Args:
        name: before the bucket's, as in `loss_by_length/9-16`.
        buckets: of the lengths.
    """

    full_state_update = False
    sums: Tensor
    counts: Tensor

    def __init__(self, name: str, buckets: Buckets = RANGES) -> None:
        super().__init__()
        self.name, self.buckets = name, buckets
        for state in ("sums", "counts"):
            self.add_state(state, torch.zeros(len(buckets.names), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor, lengths: Tensor) -> None:
        """values (N,), and the length that each is of, (N,) int64."""
        places = self.buckets.places(lengths)
        self.sums.index_add_(0, places, values.double())
        self.counts.index_add_(0, places, torch.ones_like(values, dtype=torch.float64))

    def compute(self) -> dict[str, Tensor]:
        """The buckets that have values."""
        means = self.sums / self.counts
        return {f"{self.name}/{name}": means[k] for k, name in enumerate(self.buckets.names) if self.counts[k] > 0}


class Mean(Metric):
    """The mean of values. Sums are float64 and are reduced over devices."""

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("total", "count"):
            self.add_state(state, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """values (N,)."""
        self.total += values.double().sum()
        self.count += values.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


class Perplexity(Mean):
    """exp of the mean of nats."""

    def compute(self) -> Tensor:
        return super().compute().exp()


class LanguageModelingMetrics(Metric):
    """Loss in nats a token, perplexity exp(loss), and accuracy: the share of tokens that are the likeliest. Of the
    source text, whatever the tokenizer: bits per character and per byte, total nats / ln 2 / characters, and word
    perplexity, exp(total nats / words), a newline being a word; each where the amount is known.

    Sums are float64 and are reduced over devices, so the result is the corpus's, not a mean of batch means.
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
