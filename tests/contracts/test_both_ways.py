"""The laws of mixers that are not causal: padding, permutation, and no state. (Gradients: test_references.py.)"""

from __future__ import annotations

import pytest
import torch

from contracts.cases import BOTH_WAYS, LENGTHS, POSITIONS, MixerCase, PositionCase, fits
from contracts.subjects import check_laws, decoder_subject, mixer_subject
from seqlab import laws as book
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


@pytest.mark.parametrize(("mixer", "positions"), IN_MIXER)
def test_laws(mixer: MixerCase, positions: PositionCase) -> None:
    check_laws(book.BOTH_WAYS, mixer_subject(mixer, positions), LENGTHS)


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
