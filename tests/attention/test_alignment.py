"""Attention of recurrent decoders to a memory."""

from __future__ import annotations

import torch

from contracts.subjects import randomized
from seqlab.attention import AdditiveAttention, MultiplicativeAttention
from tolerances import assert_close


@torch.no_grad()
def test_a_window_is_all_that_local_attention_sees() -> None:
    """At most 2 D + 1 neighbours, among the real tokens, whose weights are less than they were without a Gaussian."""
    mixer = randomized(MultiplicativeAttention(16, window=2))
    memory_mask = torch.ones(2, 40, dtype=torch.bool)
    memory_mask[1, 3:] = False
    x, memory = torch.randn(2, 9, 16).double(), torch.randn(2, 40, 16).double()
    weights = mixer.attention_weights(x, mixer.init_state(2, memory, memory_mask))
    assert not weights[1, ..., 3:].any()
    for row in weights.flatten(0, 2):
        seen = row.nonzero()[:, 0]
        assert 1 <= len(seen) <= 5 and seen[-1] - seen[0] == len(seen) - 1
        assert 0 < row.sum() < 1


@torch.no_grad()
def test_additive_attention_starts_as_an_average() -> None:
    """Appendix B.1 of the paper: v is 0 at first."""
    mixer = AdditiveAttention(16)
    weights = mixer.attention_weights(torch.randn(2, 3, 16), mixer.init_state(2, torch.randn(2, 5, 16)))
    assert_close(weights, torch.full((2, 1, 3, 5), 0.2))


@torch.no_grad()
def test_what_is_fed_back_matters() -> None:
    mixer = randomized(MultiplicativeAttention(16, input_feeding=True))
    x, state = torch.randn(2, 16).double(), mixer.init_state(2, torch.randn(2, 5, 16).double())
    y, new_state = mixer.step(x, state)
    assert torch.equal(new_state["fed"], y)
    changed = mixer.step(x, new_state | {"fed": torch.zeros_like(y)})[0]
    assert (changed - mixer.step(x, new_state)[0]).abs().max() > 1e-3
