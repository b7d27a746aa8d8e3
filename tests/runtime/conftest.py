"""Bundles of toy models that the C++ runtime is to run as Python does; each is made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from contracts.subjects import randomized
from export.toys import TOKENIZER, TOYS, shared_toy, toy
from once import once
from seqlab.attention import AdditiveAttention, Attention
from seqlab.models import BagOfWords, DecoderLM, Encoder, EncoderDecoder, Tagger
from seqlab.positions import Learned, RoPE
from seqlab.recurrence import GRU
from seqlab_data.tokenizers import CharTokenizer, WordTokenizer
from seqlab_export.bundle import export_bundle

SOURCE = CharTokenizer("uvwxyz ")
WORDS = WordTokenizer("the cat sat on a mat .")
SEQ_LEN = 24

Bundle = Callable[[str], Path]
"""Called with the name of a bundle, which tests must not change."""


def _both_ways() -> partial[Encoder]:
    mixer = partial(GRU, bidirectional=True)
    return partial(Encoder, d_model=8, num_layers=1, mixer=mixer, positions=Learned)


def _translator(mixer: Any = AdditiveAttention) -> EncoderDecoder:
    sizes = (TOKENIZER.vocab_size, SOURCE.vocab_size, SEQ_LEN)
    return EncoderDecoder(*sizes, encoder=_both_ways(), num_layers=1, mixer=mixer, positions=Learned)


@pytest.fixture(scope="session", name="bundle")
def _bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    def bundle(name: str) -> Path:
        if name in TOYS:
            return shared_toy(name, tmp_path_factory).folder
        return once(f"runtime-{name}", lambda folder: _exported(name, folder / "bundle"), tmp_path_factory)

    return cache(bundle)


def _exported(name: str, folder: Path) -> Path:
    if name in ("fp16", "bf16", "int8", "int4", "fused"):
        # onnxruntime's own node takes heads of a multiple of 8 channels.
        options: dict[str, Any] = {"target": "ort"} if name == "fused" else {"precision": name}
        decoder = toy(partial(Attention, num_heads=2), RoPE)
        export_bundle(decoder, TOKENIZER, folder, run_id="", commit="", seq_len=SEQ_LEN, **options)
        return folder
    made: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
        "translator": lambda: (_translator(), {"tokenizer": TOKENIZER, "source_tokenizer": SOURCE}),
        "attentive translator": lambda: (
            _translator(partial(Attention, num_heads=1)),
            {"tokenizer": TOKENIZER, "source_tokenizer": SOURCE},
        ),
        "fused translator": lambda: (
            _translator(partial(Attention, num_heads=1)),
            {"tokenizer": TOKENIZER, "source_tokenizer": SOURCE, "target": "ort"},
        ),
        "tagger": lambda: (
            Tagger(WORDS.vocab_size, 3, SEQ_LEN, encoder=_both_ways()),
            {"tokenizer": WORDS, "labels": ["O", "B-X", "I-X"]},
        ),
        "limited": lambda: (
            DecoderLM(TOKENIZER.vocab_size, 8, d_model=16, num_layers=1, positions=Learned),
            {"tokenizer": TOKENIZER},
        ),
        "classifier": lambda: (
            BagOfWords(TOKENIZER.vocab_size, 3, SEQ_LEN, d_model=8),
            {"tokenizer": TOKENIZER, "labels": ["x", "y", "z"]},
        ),
    }
    model, options = made[name]()
    model = randomized(model).float().eval()
    export_bundle(model, out=folder, run_id="", commit="", seq_len=SEQ_LEN, **options)
    return folder
