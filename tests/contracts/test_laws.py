"""The laws over every mixer x every positional encoding that fits it x awkward lengths, in float64."""

from __future__ import annotations

import pytest

from contracts.cases import CAUSAL_PAIRS, MEMORY_PAIRS, MixerCase, PositionCase, with_lengths
from contracts.subjects import causal_subject, check_law
from seqlab.laws import CAUSAL, Law


@pytest.mark.parametrize(("pair", "lengths"), with_lengths(CAUSAL_PAIRS + MEMORY_PAIRS))
@pytest.mark.parametrize("law", CAUSAL, ids=lambda law: law.__name__)
def test_law(law: Law, pair: tuple[MixerCase, PositionCase], lengths: tuple[int, ...]) -> None:
    subject = causal_subject(*pair)
    for length in lengths:
        check_law(law, subject, length)
