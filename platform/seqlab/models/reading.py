"""Reading of a batch by a model, whatever the task."""

from __future__ import annotations

from typing import Any

from seqlab.batch import IGNORE, LabelledBatch, PairBatch


def read(model: Any, batch: Any) -> None:
    """Has a model read a batch of `seqlab.batch`, without its last layer where that can be left out."""
    said = {"features": True} if hasattr(model, "output") else {}
    if isinstance(batch, PairBatch):
        state = model.begin(batch.source, batch.source_mask)
        model(batch.tokens, state, pad_mask=batch.targets != IGNORE, **said)
    elif isinstance(batch, LabelledBatch):
        model(batch.inputs, pad_mask=batch.pad_mask, **said)
    else:
        real = batch.pad_mask
        model(batch.tokens, **({} if real.all() else {"pad_mask": real}), **said)
