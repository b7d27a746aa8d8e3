"""The laws of mixers that are not causal: padding, permutation, and no state. (Gradients: test_references.py.)"""

from __future__ import annotations

import pytest
import torch

from contracts.cases import BOTH_WAYS, LENGTHS, POSITIONS, MixerCase, PositionCase, fits
from contracts.laws import GARBAGE
from contracts.subjects import decoder_subject, mixer_subject
from seqlab.positions import NoPositions
from tolerances import assert_close

mixers = pytest.mark.parametrize("mixer", BOTH_WAYS, ids=lambda mixer: mixer.name)
lengths = pytest.mark.parametrize("length", LENGTHS)
NONE, *_ = POSITIONS
IN_MIXER = [
    pytest.param(mixer, case, id=f"{mixer.name}-{case.name}")
    for mixer in BOTH_WAYS
    for case in POSITIONS
    if fits(mixer, case) and (case.acts_on != "embeddings" or case is NONE)
]


@lengths
@pytest.mark.parametrize(("mixer", "positions"), IN_MIXER)
def test_padding_changes_nothing(mixer: MixerCase, positions: PositionCase, length: int) -> None:
    module, draw = mixer_subject(mixer, positions)
    x = draw(2, length)
    expected, _ = module(x)
    for before, after in ((3, 0), (0, 5), (2, 2)):
        padded = torch.cat((GARBAGE * draw(2, before), x, GARBAGE * draw(2, after)), dim=1)
        pad_mask = torch.zeros(2, before + length + after, dtype=torch.bool)
        pad_mask[:, before : before + length] = True
        y, state = module(padded, pad_mask=pad_mask)
        assert_close(y[:, before : before + length], expected, f"{before} pads before and {after} after")
        assert state == {}


@lengths
@pytest.mark.parametrize("mixer", [case for case in BOTH_WAYS if case.attends], ids=lambda mixer: mixer.name)
def test_a_permutation_goes_through(mixer: MixerCase, length: int) -> None:
    module, draw = mixer_subject(mixer, NONE)
    x, order = draw(2, length), torch.randperm(length)
    assert_close(module(x[:, order])[0], module(x)[0][:, order])


@mixers
def test_every_output_sees_every_input(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, NONE)
    x = draw(1, 7).requires_grad_()
    for t in range(7):
        (gradient,) = torch.autograd.grad(module(x)[0][0, t].sum(), x)
        assert (gradient[0].abs().amax(dim=-1) > 0).all()


@mixers
def test_no_state_and_no_step(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, NONE)
    assert not module.causal
    assert module.state_size(7) == 0
    with pytest.raises(ValueError, match="no state and no step"):
        module.init_state(2)
    with pytest.raises(ValueError, match="no state and no step"):
        module.step(draw(2, 1)[:, 0], {})


@mixers
def test_a_causal_model_refuses_it(mixer: MixerCase) -> None:
    with pytest.raises(ValueError, match=r"layer 0 is .*causal"):
        decoder_subject(mixer.factory, NoPositions, num_layers=1)
