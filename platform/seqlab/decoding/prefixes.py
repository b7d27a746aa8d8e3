"""Cost of target tokens given three kinds of prefix: the true one, a corrupted one, and the model's own output.

B sentences of T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.batch import PairBatch


def forced_nats(model: Any, batch: PairBatch, tokens: Tensor | None = None) -> Tensor:
    """Nats of the batch's targets, (B, T), with `tokens` (B, T) as decoder inputs; None = the batch's own.

    Args:
        model: an encoder-decoder with `begin(source, source_mask)` and `step(tokens, state)`.
    """
    read = batch.tokens if tokens is None else tokens
    return _walk(model, batch, lambda place, _: read[:, place])[0]


def free_nats(model: Any, batch: PairBatch) -> tuple[Tensor, Tensor]:
    """Nats of the batch's targets with the decoder's own greedy output as input, and that output, (B, T) both."""
    return _walk(model, batch, lambda place, best: best if place else batch.tokens[:, 0])


@torch.no_grad()
def _walk(model: Any, batch: PairBatch, read: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    state, best, nats, written = model.begin(batch.source, batch.source_mask), batch.tokens[:, 0], [], []
    for place in range(batch.targets.shape[1]):
        logits, state = model.step(read(place, best), state)
        best = logits.argmax(dim=-1)
        nats.append(F.cross_entropy(logits, batch.targets[:, place], reduction="none"))
        written.append(best)
    return torch.stack(nats, dim=1).double(), torch.stack(written, dim=1)
