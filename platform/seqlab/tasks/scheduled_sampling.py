"""Scheduled sampling: in training, a decoder reads some of its own samples instead of the true tokens.

B batch, T target length.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from seqlab.batch import IGNORE, PairBatch


class ScheduledSampling:
    """Replaces each decoder input after the first, with probability 1 - p, by a sample from the model's own
    distribution (Bengio et al. 2015, "Scheduled sampling"). The teacher forcing ratio p changes linearly from `first`
    to `last` over the fit.

    No gradient passes through the samples, so the loss needs only one parallel pass over them.

    Args:
        first, last: initial and final values of p, from 0 to 1.
        passes: "sequential": each sample is conditioned on the samples before it, step by step; "parallel": all
            samples are conditioned on the true tokens, in one extra forward pass (Mihaylova & Martins 2019,
            "Scheduled sampling for Transformers").

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self, *, first: float = 1.0, last: float = 0.75, passes: Literal["sequential", "parallel"] = "sequential"
    ) -> None:
        if not (0 <= first <= 1 and 0 <= last <= 1):
            raise ValueError(f"the teacher forcing ratios must be from 0 to 1, got {first} and {last}")
        if passes not in ("sequential", "parallel"):
            raise ValueError(f"passes must be sequential or parallel, got {passes}")
        self.first, self.last = first, last
        self.sequential = passes == "sequential"

    @torch.no_grad()
    def tokens(self, model: Any, batch: PairBatch, state: Any, progress: float) -> Tensor:
        """Tokens (B, T) for the decoder to read instead of `batch.tokens`.

        Args:
            model: a model with the signature of `EncoderDecoder`.
            state: initial state of its decoder.
            progress: completed share of the fit, from 0 to 1.
        """
        ratio = self.first + (self.last - self.first) * progress
        own = torch.rand(batch.tokens.shape, dtype=torch.float32, device=batch.tokens.device) >= ratio
        own[:, 0] = False
        own &= batch.targets != IGNORE
        if not own.any():
            return batch.tokens
        if not self.sequential:
            logits = model(batch.tokens, state, pad_mask=batch.targets != IGNORE)[0]
            return torch.where(own, _drawn(logits).roll(1, dims=1), batch.tokens)
        read = [batch.tokens[:, 0]]
        for t in range(1, batch.tokens.shape[1]):
            logits, state = model.step(read[-1], state)
            read.append(torch.where(own[:, t], _drawn(logits), batch.tokens[:, t]))
        return torch.stack(read, dim=1)


def _drawn(logits: Tensor) -> Tensor:
    """Samples a token (...) from each row of logits (..., V) with the Gumbel-max trick."""
    noise = -torch.empty_like(logits, dtype=torch.float32).exponential_().log()
    return (logits.float() + noise).argmax(dim=-1)
