"""Parameter counts that others published, on the meta device."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from seqlab.attention import Attention
from seqlab.models import DecoderLM
from seqlab.nn import GELU, Block, LayerNorm, RMSNorm, SwiGLU
from seqlab.positions import Learned, NoPositions
from seqlab.recurrence import GRU, LSTM, RNN


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("seq_len", "num_layers", "d_model", "num_heads", "expected"),
    [
        pytest.param(1024, 12, 768, 12, 124_439_808, id="gpt2"),
        pytest.param(1024, 24, 1024, 16, 354_823_168, id="gpt2-medium"),
        pytest.param(1024, 36, 1280, 20, 774_030_080, id="gpt2-large"),
        pytest.param(1024, 48, 1600, 25, 1_557_611_200, id="gpt2-xl"),
        pytest.param(2048, 96, 12288, 96, 174_604_259_328, id="gpt3"),
    ],
)
def test_gpt(seq_len: int, num_layers: int, d_model: int, num_heads: int, expected: int) -> None:
    with torch.device("meta"):
        model = DecoderLM(
            50257,
            seq_len,
            d_model=d_model,
            num_layers=num_layers,
            mixer=partial(Attention, num_heads=num_heads),
            positions=Learned,
        )
    assert count(model) == expected


@pytest.mark.parametrize(
    ("num_layers", "d_model", "seq_len", "expected", "less_positions"),
    [(4, 128, 64, 804_096, 795_904), (6, 384, 256, 10_745_088, 10_646_784)],
    ids=["cpu", "gpu"],
)
def test_nanogpt_on_shakespeare(
    num_layers: int, d_model: int, seq_len: int, expected: int, less_positions: int
) -> None:
    """karpathy/nanoGPT, train_shakespeare_char: no bias anywhere, 65 characters."""
    with torch.device("meta"):
        model = DecoderLM(
            65,
            seq_len,
            d_model=d_model,
            num_layers=num_layers,
            mixer=partial(Attention, bias=False),
            positions=Learned,
            block=partial(Block, norm=partial(LayerNorm, bias=False), ffn=partial(GELU, bias=False)),
        )
    assert count(model) == expected
    assert count(model) - count(model.positions) == less_positions


@pytest.mark.parametrize(("mixer", "gates"), [(RNN, 1), (GRU, 3), (LSTM, 4)])
def test_recurrences(mixer: Any, gates: int) -> None:
    """PyTorch's two biases: gates * (h (i + h) + 2 h), with i = h."""
    h = 48
    assert count(mixer(h)) == gates * (h * (h + h) + 2 * h)


def test_grouped_queries_and_swiglu() -> None:
    """Llama's block: queries and output d^2 each, keys and values d^2 / group each, three feed-forward matrices."""
    d, layers = 64, 3
    model = DecoderLM(
        100,
        16,
        d_model=d,
        num_layers=layers,
        mixer=partial(Attention, num_heads=8, num_kv_heads=2, bias=False),
        positions=NoPositions,
        block=partial(Block, norm=RMSNorm, ffn=partial(SwiGLU, d_ff=160)),
        tie_embeddings=False,
    )
    assert count(model) == 2 * 100 * d + layers * (2 * d * d + 2 * d * d // 4 + 3 * d * 160 + 2 * d) + d
