"""Forward pass of a model over a batch of any task."""

from __future__ import annotations

from typing import Any

from seqlab.batch import IGNORE, LabelledBatch, PairBatch, alone


def read(model: Any, batch: Any) -> None:
    """Runs a model's forward pass on a batch of `seqlab.batch`, without the output layer if the model can. Documents of
    packed rows are read in rows of their own."""
    said = {"features": True} if hasattr(model, "output") else {}
    if isinstance(batch, PairBatch):
        state = model.begin(batch.source, batch.source_mask)
        model(batch.tokens, state, pad_mask=batch.targets != IGNORE, **said)
    elif isinstance(batch, LabelledBatch):
        model(batch.inputs, pad_mask=batch.pad_mask, **said)
    else:
        batch = alone(batch)
        real = batch.pad_mask
        model(batch.tokens, **({} if real.all() else {"pad_mask": real}), **said)
