"""The laws over every mixer x every positional encoding that fits it x awkward lengths, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.cases import CAUSAL_PAIRS, LENGTHS, MEMORY_PAIRS, MixerCase, PositionCase, pair_name
from contracts.laws import CAUSAL
from contracts.subjects import Subject, causal_subject


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("pair", CAUSAL_PAIRS + MEMORY_PAIRS, ids=pair_name)
@pytest.mark.parametrize("law", CAUSAL, ids=lambda law: law.__name__)
def test_law(law: Callable[[Subject, int], None], pair: tuple[MixerCase, PositionCase], length: int) -> None:
    law(causal_subject(*pair), length)
