"""Initialisation and size of differential attention."""

from __future__ import annotations

import pytest

from seqlab.attention import Attention, DifferentialAttention
from seqlab.models import DecoderLM


def test_lambda_starts_as_the_paper_says() -> None:
    """Section 2.1: 0.2 in the first layer, rising to 0.8, and noise of 0.1 in each vector; what else is initialised
    leaves it alone."""
    model = DecoderLM(11, 8, d_model=512, num_layers=12, mixer=DifferentialAttention)
    mixers = [block.mixer for block in model.stack.blocks]
    assert [mixer.lambda_init for mixer in mixers[:2]] == pytest.approx([0.2, 0.3555090676])
    assert mixers[-1].lambda_init == pytest.approx(0.8, abs=0.03)
    assert mixers[0].lambda_k2.std().item() == pytest.approx(0.1, rel=0.25)


def test_as_many_parameters_as_attention_of_twice_the_heads() -> None:
    ours, theirs = DifferentialAttention(64, num_heads=4), Attention(64, num_heads=8, bias=False)
    assert ours.head_dim == theirs.head_dim
    counts = [sum(p.numel() for name, p in mixer.named_parameters() if "_proj" in name) for mixer in (ours, theirs)]
    assert counts[0] == counts[1]
    assert ours.state_size(10) == theirs.state_size(10)
