"""A right bundle is never refused: models drawn by chance, of any mixer, are exported and proven."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.cases import MIXERS
from seqlab.models import DecoderLM
from seqlab.nn import GEGLU, Block, LayerNorm, RMSNorm, SwiGLU
from seqlab.positions import ALiBi, Learned, NoPositions, RoPE
from seqlab_data.tokenizers import CharTokenizer
from seqlab_export.bundle import export_bundle

# Between scores that are as near as rounding top-k chooses by chance.
CAUSAL = [mixer for mixer in MIXERS if mixer.causal and not mixer.memory and mixer.name != "attention-top-k"]


def drawn(draw: np.random.Generator, most_d_model: int, most_tokens: int, layers: int) -> DecoderLM:
    mixer = CAUSAL[draw.integers(len(CAUSAL))]
    positions = [NoPositions, Learned, *([RoPE, ALiBi] if mixer.attends else [])]
    places: list[Any] = ["pre", "sandwich", "branch"]
    d_model = 32 * int(2 ** draw.uniform(0, np.log2(most_d_model / 32)))
    model = DecoderLM(
        int(most_tokens ** draw.uniform(0.5, 1)),
        32,
        d_model=d_model,
        num_layers=int(draw.integers(1, layers + 1)),
        mixer=mixer.factory,
        positions=positions[draw.integers(len(positions))],
        block=partial(
            Block,
            norm=[LayerNorm, RMSNorm][draw.integers(2)],
            norm_place=places[draw.integers(3)],
            ffn=partial([SwiGLU, GEGLU][draw.integers(2)], d_ff=3 * d_model),
        ),
        logit_cap=[None, 10.0][draw.integers(2)],
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases that matter
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_model_is_written(seed: int, tmp_path: Path) -> None:
    """Two are tiny."""
    draw = np.random.default_rng((seed, torch.initial_seed()))
    model = drawn(draw, 64, 100, 1) if seed < 2 else drawn(draw, 512, 20_000, 3)
    tokenizer = CharTokenizer("".join(chr(0x4E00 + place) for place in range(model.vocab_size - 4)))
    assert tokenizer.vocab_size == model.vocab_size
    report = export_bundle(model, tokenizer, tmp_path / "bundle", seq_len=32)
    assert report.ok
