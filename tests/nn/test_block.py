"""Where a block puts its norms, and what a stack does with its blocks."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from seqlab.attention import Attention
from seqlab.nn import Block, RMSNorm, Stack
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import GRU
from tolerances import assert_close


def _block(norm_place: str) -> Block:
    block = Block(8, GRU(8), norm_place=norm_place)
    for parameter in block.double().parameters():
        nn.init.normal_(parameter)
    return block


def test_pre_norm() -> None:
    """Xiong et al. 2020: the residual stream is never normalised inside a block; a norm ends the stack."""
    block, x = _block("pre"), torch.randn(2, 5, 8, dtype=torch.float64)
    mixed = x + block.mixer(block.mixer_norm(x))[0]
    assert_close(block(x)[0], mixed + block.ffn(block.ffn_norm(mixed)))
    assert isinstance(block.final_norm(), type(block.mixer_norm))


def test_post_norm() -> None:
    """Vaswani et al. 2017: every residual sum is normalised; nothing is left for the end of the stack."""
    block, x = _block("post"), torch.randn(2, 5, 8, dtype=torch.float64)
    mixed = block.mixer_norm(x + block.mixer(x)[0])
    assert_close(block(x)[0], block.ffn_norm(mixed + block.ffn(mixed)))
    assert isinstance(block.final_norm(), nn.Identity)


def _stack(mixer: object, num_layers: int, *, causal: bool = True) -> Stack:
    return Stack(8, num_layers, mixer=mixer, positions=NoPositions(8, 8), block=Block, causal=causal)


def test_a_list_of_mixers_is_repeated() -> None:
    mixers = [block.mixer for block in _stack([GRU, Attention], 5).blocks]
    assert [type(mixer) for mixer in mixers] == [GRU, Attention, GRU, Attention, GRU]
    assert [mixer.layer for mixer in mixers] == [0, 1, 2, 3, 4]
    assert len({id(mixer) for mixer in mixers}) == 5


def test_the_state_holds_every_layer() -> None:
    stack = _stack([GRU, Attention], 3)
    _, state = stack(torch.randn(2, 5, 8))
    assert list(state) == ["position", "key_mask", "0_h", "1_k", "1_v", "2_h"]
    assert stack.state_size(5) == 8 + 2 * 5 * 8 + 8


def test_only_a_causal_stack_refuses_mixers_that_are_not() -> None:
    both_ways = partial(Attention, causal=False)
    with pytest.raises(ValueError, match=r"layer 1 is Attention, not causal"):
        _stack([GRU, both_ways], 2)
    y, state = _stack(both_ways, 2, causal=False)(torch.randn(2, 5, 8))
    assert y.shape == (2, 5, 8)
    assert state == {}


def test_positions_reach_every_mixer() -> None:
    rope = RoPE(8, 8)
    stack = Stack(8, 3, mixer=Attention, positions=rope, block=partial(Block, norm=RMSNorm), causal=True)
    assert all(block.mixer.positions is rope for block in stack.blocks)
    assert isinstance(stack.norm, RMSNorm)
