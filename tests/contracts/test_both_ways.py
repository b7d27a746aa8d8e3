"""The laws of mixers that are not causal: padding, permutation, and no state. (Gradients: test_references.py.)"""

from __future__ import annotations

import pytest
import torch

from contracts.cases import BOTH_WAYS, PAIRS, POSITIONS, MixerCase, PositionCase, pair_name
from contracts.subjects import check_laws, decoder_subject, mixer_subject
from seqlab import laws as book
from seqlab.positions import NoPositions
from tolerances import assert_close

mixers = pytest.mark.parametrize("mixer", BOTH_WAYS, ids=lambda mixer: mixer.name)
NONE, *_ = POSITIONS
LENGTHS = (1, 2, 7, 65)


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not pair[0].causal], ids=pair_name)
def test_laws(pair: tuple[MixerCase, PositionCase]) -> None:
    check_laws(book.BOTH_WAYS, mixer_subject(*pair), LENGTHS)


@pytest.mark.parametrize("mixer", [case for case in BOTH_WAYS if case.attends], ids=lambda mixer: mixer.name)
def test_a_permutation_goes_through(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, NONE)
    for length in LENGTHS:
        x, order = draw(2, length), torch.randperm(length)
        assert_close(module(x[:, order])[0], module(x)[0][:, order])


@mixers
def test_every_output_sees_every_input_and_there_is_no_state(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, NONE)
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
