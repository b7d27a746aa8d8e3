"""The laws over every mixer x every positional encoding that fits it x awkward lengths, in float64."""

from __future__ import annotations

import pytest

from contracts.cases import CAUSAL_PAIRS, MEMORY_PAIRS, MixerCase, PositionCase, at_lengths
from contracts.subjects import causal_subject, check_law
from seqlab.laws import CAUSAL, Law


@pytest.mark.parametrize(("pair", "length"), at_lengths(CAUSAL_PAIRS + MEMORY_PAIRS))
@pytest.mark.parametrize("law", CAUSAL, ids=lambda law: law.__name__)
def test_law(law: Law, pair: tuple[MixerCase, PositionCase], length: int) -> None:
    check_law(law, causal_subject(*pair), length)
