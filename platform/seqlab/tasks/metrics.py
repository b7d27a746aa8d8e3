"""Task metrics, as torchmetrics. By length means by bucket (1 to 8, 9 to 16, 17 to 32, ...) or by each length.

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
        bounds: largest length of each bucket, ascending; a last bucket is added for all greater lengths.

    Attributes:
        names: names of the buckets, such as 9-16, 9 or over 1024.
    """

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = tuple(bounds)
        ranges = ((low + 1, high) for low, high in pairwise((0, *bounds)))
        names = (f"{low}-{high}" if low < high else f"{high}" for low, high in ranges)
        self.names = (*names, f"over {self.bounds[-1]}")

    def places(self, lengths: Tensor) -> Tensor:
        """Maps lengths (N,), at least 1, to bucket indices (N,)."""
        return torch.bucketize(lengths, torch.tensor(self.bounds, device=lengths.device))


RANGES, EACH = Buckets([8, 16, 32, 64, 128, 256, 512, 1024]), Buckets(range(1, 1025))


class MeanByLength(Metric):
    """Mean of the values in each length bucket. Sums are float64 and are reduced over devices.

    Args:
        name: prefix of the metric names, as in `loss_by_length/9-16`.
        buckets: length buckets.
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
        """Adds values (N,) with their lengths (N,) int64."""
        places = self.buckets.places(lengths)
        self.sums.index_add_(0, places, values.double())
        self.counts.index_add_(0, places, torch.ones_like(values, dtype=torch.float64))

    def compute(self) -> dict[str, Tensor]:
        """Means of the non-empty buckets, by metric name."""
        means = self.sums / self.counts
        return {f"{self.name}/{name}": means[k] for k, name in enumerate(self.buckets.names) if self.counts[k] > 0}


class Mean(Metric):
    """Mean of values. Sums are float64 and are reduced over devices."""

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("total", "count"):
            self.add_state(state, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """Adds values (N,)."""
        self.total += values.double().sum()
        self.count += values.numel()

    def compute(self) -> Tensor:
        return self.total / self.count


class Perplexity(Mean):
    """Exponential of the mean of nats."""

    def compute(self) -> Tensor:
        return super().compute().exp()


class LanguageModelingMetrics(Metric):
    """Loss in nats per token, perplexity exp(loss), and top-1 accuracy. Independent of the tokenizer: bits per
    character and per byte, total nats / ln 2 / characters or bytes, and word perplexity, exp(total nats / words), where
    a newline counts as a word. Scores per byte and per word are reported only where these counts are known.

    Sums are float64 and are reduced over devices, so the result is corpus-level, not a mean of batch means.
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
        """Adds a batch: its summed cross-entropy, the numbers of tokens and of characters it covers, the number of
        correct top-1 predictions, and the numbers of bytes and of words, 0 = unknown; all ()."""
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
