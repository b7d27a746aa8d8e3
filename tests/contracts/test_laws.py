"""The laws over every mixer x every positional encoding that fits it x awkward lengths, in float64."""

from __future__ import annotations

import pytest

from contracts.cases import CAUSAL_PAIRS, MEMORY_PAIRS, MixerCase, PositionCase, with_lengths
from contracts.subjects import causal_subject, check_laws
from seqlab.laws import CAUSAL


@pytest.mark.parametrize(("pair", "lengths"), with_lengths(CAUSAL_PAIRS + MEMORY_PAIRS))
def test_a_pair_keeps_the_laws(pair: tuple[MixerCase, PositionCase], lengths: tuple[int, ...]) -> None:
    check_laws(CAUSAL, causal_subject(*pair), lengths)
