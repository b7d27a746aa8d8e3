"""A head that is left out."""

from __future__ import annotations

import torch

from seqlab.attention import Attention
from seqlab.attention.ablation import heads_of, left_out
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions


def test_a_head_that_is_left_out_says_nothing() -> None:
    model = DecoderLM(5, 32, d_model=8, num_layers=2, mixer=Attention, positions=NoPositions).eval()
    assert len(heads_of(model)) == 8
    name, _ = heads_of(model)[0]
    attention = model.get_submodule(name)
    assert isinstance(attention, Attention)
    x = torch.randn(1, 4, 8)
    with torch.no_grad():
        whole = attention(x)[0]
        with left_out(model, [heads_of(model)[1]]):
            without = attention(x)[0]
        kept = attention.out_proj.weight[:, 2:4].clone()
        attention.out_proj.weight[:, 2:4] = 0
        torch.testing.assert_close(without, attention(x)[0])
        attention.out_proj.weight[:, 2:4] = kept
        assert not torch.allclose(whole, without)
        torch.testing.assert_close(attention(x)[0], whole)
