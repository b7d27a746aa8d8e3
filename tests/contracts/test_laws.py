"""The laws of every mixer with every encoding that acts in it, and with the memory that it reads, in float64.

Of one that is not causal: padding, and no state. (Gradients: test_references.py.)
"""

from __future__ import annotations

import pytest

from contracts import cases
from contracts.cases import MixerCase, PositionCase, pair_name, with_lengths
from contracts.subjects import check_laws, decoder_subject, mixer_subject
from seqlab.laws import BOTH_WAYS, CAUSAL
from seqlab.positions import NoPositions

Pair = tuple[MixerCase, PositionCase]
IN_MIXER = [pair for pair in cases.CAUSAL_PAIRS if pair[1].acts_on != "embeddings" or pair[1].name == "none"]


@pytest.mark.parametrize(("pair", "lengths"), with_lengths(IN_MIXER + cases.MEMORY_PAIRS))
def test_a_pair_keeps_the_laws(pair: Pair, lengths: tuple[int, ...]) -> None:
    check_laws(CAUSAL, mixer_subject(*pair), lengths)


@pytest.mark.parametrize("pair", [pair for pair in cases.PAIRS if not pair[0].causal], ids=pair_name)
def test_both_ways(pair: Pair) -> None:
    check_laws(BOTH_WAYS, mixer_subject(*pair), (1, 2, 7, 65))


@pytest.mark.parametrize("mixer", cases.BOTH_WAYS, ids=lambda mixer: mixer.name)
def test_what_reads_both_ways_has_no_state(mixer: MixerCase) -> None:
    module, draw = mixer_subject(mixer, cases.POSITIONS[0])
    assert not module.causal and module.state_size(7) == 0
    for call in (lambda: module.init_state(2), lambda: module.step(draw(2, 1)[:, 0], {})):
        with pytest.raises(ValueError, match="no state and no step"):
            call()
    with pytest.raises(ValueError, match=r"layer 0 is .*causal"):
        decoder_subject(mixer.factory, NoPositions, num_layers=1)
