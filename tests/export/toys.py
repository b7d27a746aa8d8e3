"""Toy models, their tokenizer, and what an exported one is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from contracts.subjects import VOCAB_SIZE, decoder_subject
from seqlab.models import DecoderLM
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
"""Called with "attention" or "gru"."""


def toy(mixer: Any, positions: Any, num_layers: int = 2) -> DecoderLM:
    """A small decoder with telling weights."""
    model: DecoderLM = decoder_subject(mixer, positions, num_layers=num_layers).module.float()
    return model


def export_toy(model: DecoderLM, folder: Path) -> Exported:
    report = export_bundle(model, TOKENIZER, folder, run_id="a run", commit="a commit", seq_len=32)
    return Exported(model, folder, report)
