"""Toy models, their tokenizer, and what an exported one is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contracts.subjects import VOCAB_SIZE, decoder_subject
from once import once
from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU, Mamba
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import export_bundle
from seqlab_export.runner.report import Report

TOKENIZER = CharTokenizer("abcdef ")
assert TOKENIZER.vocab_size == VOCAB_SIZE


class Exported(NamedTuple):
    """A bundle, which tests must not change, with the model that it is of."""

    model: DecoderLM
    folder: Path
    report: Report


Export = Callable[..., Exported]
"""Called with a mixer (or a list), an encoding and `num_layers`."""

Shared = Callable[[str], Exported]
"""Called with a name of `TOYS`."""

# Of one layer each.
TOYS = {"attention": (Attention, RoPE), "gru": (GRU, NoPositions), "mamba": (Mamba, NoPositions)}


def toy(mixer: Any, positions: Any, num_layers: int = 2) -> DecoderLM:
    """A small decoder with telling weights."""
    model: DecoderLM = decoder_subject(mixer, positions, num_layers=num_layers).module.float()
    return model


def export_toy(model: DecoderLM, folder: Path) -> Exported:
    report = export_bundle(model, TOKENIZER, folder, run_id="a run", commit="a commit", seq_len=32)
    return Exported(model, folder, report)


def shared_toy(name: str, factory: pytest.TempPathFactory) -> Exported:
    return once(f"toy-{name}", lambda folder: export_toy(toy(*TOYS[name], 1), folder / "bundle"), factory)
