"""Attention maps of a model, as figures and as data.

B batch, H heads, T query length, S key length.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from seqlab.batch import IGNORE, PairBatch, TokenBatch, alone
from seqlab.models.reading import read
from seqlab.probes.attention_weights import recorded_weights
from seqlab.tasks.drawings import AttentionMap, attention_maps


class AttentionMaps(Callback):
    """Stores at the end of a fit the attention maps of chosen rows of the first validation batch, by layer and head, in
    `attention/ROW.svg` and `attention/ROW.json` of the run.

    The JSON file has "maps" (H, T, S), keyed by the mixer's name in the model; "tokens", the model's inputs; and
    "source", the encoder's inputs.

    Args:
        rows: indices of rows in the batch, in the order of the validation data.
    """

    def __init__(self, rows: Sequence[int] = (0, 1)) -> None:
        self.rows = list(rows)

    @torch.no_grad()
    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        log_text = getattr(trainer.logger, "log_text", None)
        if log_text is None:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        batch = pl_module.transfer_batch_to_device(next(iter(data.val_dataloader())), pl_module.device, 0)
        batch = alone(batch) if isinstance(batch, TokenBatch) else batch
        model: Any = pl_module.model
        with recorded_weights(model.eval()) as weights:
            read(model, batch)  # on every rank, since a sharded model needs all of them
        if not trainer.is_global_zero:
            return
        for row in [row for row in self.rows if row < len(batch[0])]:
            tokens, source = _texts(batch, row, data)
            if getattr(model, "class_token", None) is not None:
                tokens = source = ["<class>", *source]
            maps = []
            for name, found in weights.items():
                queries = source if name.startswith("encoder.") else tokens
                keys = source if model.get_submodule(name).needs_memory else queries
                # Padding is trailing.
                maps.append(AttentionMap(name, found[row, :, : len(queries), : len(keys)].cpu().numpy(), queries, keys))
            content = {"tokens": tokens, "source": source, "maps": {m.name: m.weights.tolist() for m in maps}}
            log_text(json.dumps(content) + "\n", f"attention/{row}.json")
            if maps:
                log_text(attention_maps(maps), f"attention/{row}.svg")


def _texts(batch: Any, row: int, data: Any) -> tuple[list[str], list[str]]:
    """Real input tokens of the model and of its encoder, each as text."""
    if isinstance(batch, PairBatch):
        read = batch.tokens[row][batch.targets[row] != IGNORE]
        source = batch.source[row][batch.source_mask[row]]
        return _names(read, data.tokenizer), _names(source, data.source_tokenizer)
    if isinstance(batch, TokenBatch):
        return _names(batch.tokens[row][batch.pad_mask[row]], getattr(data, "tokenizer", None)), []
    inputs = batch.inputs[row][batch.pad_mask[row]]
    names = [str(place) for place in range(len(inputs))] if inputs.dim() > 1 else _names(inputs, data.tokenizer)
    return names, names


def _names(ids: Tensor, tokenizer: Any) -> list[str]:
    """Tokens as text; special tokens such as `<bos>`, which decode to nothing, by their names in the tokenizer."""
    if tokenizer is None:
        return [str(token) for token in ids.tolist()]
    special = {getattr(tokenizer, name): f"<{name[:-3]}>" for name in dir(tokenizer) if name.endswith("_id")}
    return [tokenizer.decode([token]) or special.get(token, f"<{token}>") for token in ids.tolist()]
