"""The laws over every mixer x every positional encoding that fits it x awkward lengths, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.cases import CAUSAL_PAIRS, MEMORY_PAIRS, MixerCase, PositionCase, at_lengths
from contracts.laws import CAUSAL
from contracts.subjects import Subject, causal_subject


@pytest.mark.parametrize(("pair", "length"), at_lengths(CAUSAL_PAIRS + MEMORY_PAIRS))
@pytest.mark.parametrize("law", CAUSAL, ids=lambda law: law.__name__)
def test_law(law: Callable[[Subject, int], None], pair: tuple[MixerCase, PositionCase], length: int) -> None:
    law(causal_subject(*pair), length)
