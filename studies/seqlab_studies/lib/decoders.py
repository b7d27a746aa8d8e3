"""Decoders with equal numbers of parameters, attention and recurrences, in PyTorch and in the bundle."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from seqlab.attention import Attention, GatedDeltaNet
from seqlab.decoding.torch_model import TorchDecoder
from seqlab.mixer import Mixer
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LSTM, Mamba
from seqlab_studies.lib.sizes import matched, size_of

VOCAB, LAYERS, USUAL = 64, 2, 1024
"""USUAL is the training length given to a bundle; neither runtime has a limit."""
PYTORCH, BUNDLE = "PyTorch", "the bundle"
ATTENTION = "attention"
ATTENTIONS: dict[str, Callable[..., Mixer]] = {
    ATTENTION: Attention,
    "attention of one key head": partial(Attention, num_kv_heads=1),
}
RECURRENCES: dict[str, Callable[..., Mixer]] = {
    "GRU": GRU,
    "LSTM": LSTM,
    "Mamba": Mamba,
    "GatedDeltaNet": GatedDeltaNet,
}


@cache
def decoders_of(width: int, device: Literal["cpu", "cuda"], exported: bool) -> dict[tuple[str, str], Any]:
    """Decoders by model and runtime, with random weights and as many parameters as attention of this width. Cached."""

    def model(make: Callable[..., Mixer], wide: int) -> Any:
        return DecoderLM(VOCAB, USUAL, d_model=wide, num_layers=LAYERS, mixer=make, positions=NoPositions)

    found: dict[tuple[str, str], Any] = {}
    size = size_of(model(Attention, width))
    with torch.random.fork_rng(), TemporaryDirectory() as folder:
        torch.manual_seed(0)
        for name, make in (ATTENTIONS | RECURRENCES).items():
            made = model(make, matched(partial(model, make), size))
            if exported:
                from seqlab_export import export_bundle, open_bundle

                bundle = Path(folder) / name
                export_bundle(made, None, bundle, seq_len=USUAL, provider=device)
                found[name, BUNDLE] = open_bundle(bundle, provider=device, threads=1)
            found[name, PYTORCH] = TorchDecoder(made.to(device))
    return found
