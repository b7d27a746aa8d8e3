"""Cost of the words of a translation after prefixes of three kinds: the true ones, corrupted ones, the model's own.

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
    """Nats of the batch's targets, (B, T), where the decoder reads `tokens` (B, T): the batch's own, or corrupted ones.

    Args:
        model: has `begin(source, source_mask)` and `step(tokens, state)`, as all encoder-decoders here.
    """
    read = batch.tokens if tokens is None else tokens
    return _walk(model, batch, lambda place, _: read[:, place])[0]


def free_nats(model: Any, batch: PairBatch) -> tuple[Tensor, Tensor]:
    """Nats of the batch's targets, (B, T), where the decoder reads its own greedy output; and that output, (B, T)."""
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
