"""Translations that a fitted encoder-decoder writes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqlab.decoding import generate
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.trained.load import LoadedRun


def translate(loaded: LoadedRun, sources: Sequence[str]) -> list[str]:
    """Translations of texts, in their order."""
    from seqlab_data.batches import pad

    tokenizer = loaded.source_tokenizer
    assert tokenizer is not None
    rows = [torch.tensor([*tokenizer.encode(text), tokenizer.eos_id]).numpy() for text in sources]
    source = pad(rows, tokenizer.pad_id)  # (B, S)
    mask = pad([row * 0 + 1 for row in rows], 0).bool()
    return write(loaded, source, mask)


@torch.inference_mode()
def write(loaded: LoadedRun, source: Tensor, mask: Tensor, size: int = 100) -> list[str]:
    """Greedy outputs for sources (B, S), so many at a time."""
    tokenizer, texts = loaded.tokenizer, list[str]()
    for some in (slice(start, start + size) for start in range(0, len(source), size)):
        decoder = TorchDecoder(loaded.model, loaded.model.begin(source[some], mask[some]))
        begun, room = [[tokenizer.bos_id]] * len(source[some]), loaded.task.seq_len
        texts += map(tokenizer.decode, generate(decoder, begun, max_new_tokens=room, stop_ids=(tokenizer.eos_id,)))
    return texts
