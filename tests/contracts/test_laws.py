"""The laws of every mixer with every encoding that acts in it, and with the memory that it reads, in float64.

Of one that is not causal: padding, permutation, and no state. (Gradients: test_references.py.)
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from contracts.cases import (
    BOTH_WAYS,
    CAUSAL_PAIRS,
    MEMORY_PAIRS,
    MIXERS,
    PAIRS,
    POSITIONS,
    MixerCase,
    PositionCase,
    pair_name,
    with_lengths,
)
from contracts.subjects import check_laws, decoder_subject, mixer_subject
from seqlab.laws import BOTH_WAYS as LAWS_BOTH_WAYS
from seqlab.laws import CAUSAL
from seqlab.positions import NoPositions
from tolerances import assert_close

Pair = tuple[MixerCase, PositionCase]
IN_MIXER = [pair for pair in CAUSAL_PAIRS if pair[1].acts_on != "embeddings" or pair[1].name == "none"]


@pytest.mark.parametrize(("pair", "lengths"), with_lengths(IN_MIXER + MEMORY_PAIRS))
def test_a_pair_keeps_the_laws(pair: Pair, lengths: tuple[int, ...]) -> None:
    check_laws(CAUSAL, mixer_subject(*pair), lengths)


@torch.no_grad()
def test_no_normaliser_of_linear_attention_is_near_zero() -> None:
    """Otherwise a law would compare rounding errors."""
    case = next(mixer for mixer in MIXERS if mixer.name == "linear-relu")
    for _ in range(20):
        mixer, inputs = mixer_subject(case, POSITIONS[0])
        x = inputs(3, 7)
        products = F.relu(mixer.q_proj(x)) * F.relu(mixer.k_proj(x)).cumsum(dim=1)
        assert products.unflatten(-1, (mixer.num_heads, -1)).sum(dim=-1).min() > 0.5


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not pair[0].causal], ids=pair_name)
def test_both_ways(pair: Pair) -> None:
    check_laws(LAWS_BOTH_WAYS, mixer_subject(*pair), (1, 2, 7, 65))


@pytest.mark.parametrize("mixer", [case for case in BOTH_WAYS if case.attends], ids=lambda mixer: mixer.name)
def test_a_permutation_goes_through(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, POSITIONS[0])
    for length in (1, 2, 7, 65):
        x, order = draw(2, length), torch.randperm(length)
        assert_close(module(x[:, order])[0], module(x)[0][:, order])


@pytest.mark.parametrize("mixer", BOTH_WAYS, ids=lambda mixer: mixer.name)
def test_every_output_sees_every_input_and_there_is_no_state(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, POSITIONS[0])
    x = draw(1, 7).requires_grad_()
    for t in range(7):
        (gradient,) = torch.autograd.grad(module(x)[0][0, t].sum(), x)
        assert (gradient[0].abs().amax(dim=-1) > 0).all()
    assert not module.causal
    assert module.state_size(7) == 0
    with pytest.raises(ValueError, match="no state and no step"):
        module.init_state(2)
    with pytest.raises(ValueError, match="no state and no step"):
        module.step(draw(2, 1)[:, 0], {})
    with pytest.raises(ValueError, match=r"layer 0 is .*causal"):
        decoder_subject(mixer.factory, NoPositions, num_layers=1)
