"""Learning curves of the leaderboard: where models cross, their power law, and the page made of the stored curves."""

from __future__ import annotations

import json
import re
import runpy
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from repository.source_tree import ROOT

TOKENS = 1e5 * np.arange(1.0, 21)


@pytest.fixture(scope="module")
def crossing() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
        return runpy.run_path(str(ROOT / "scripts/crossing.py"))


def curve(limit: float, factor: float, exponent: float) -> NDArray[np.float64]:
    return limit + factor * (TOKENS / 1e5) ** -exponent


def seeds(mean: NDArray[np.float64], draw: np.random.Generator, spread: float, count: int = 5) -> NDArray[np.float64]:
    """Curves that are apart by a seed, and a little by each validation."""
    noise = draw.normal(size=(count, 1)) + 0.3 * draw.normal(size=(count, len(mean)))
    return mean + spread * noise


SLOW, QUICK = curve(1.0, 2.0, 0.6), curve(1.3, 1.2, 0.6)
"""The slow one is worse at first; they cross where 0.8 n^-0.6 = 0.3."""
CROSSED = 1e5 * (0.8 / 0.3) ** (1 / 0.6)


def test_a_crossing_is_found_where_it_is(crossing: dict[str, Any]) -> None:
    draw = np.random.default_rng(0)
    slow, quick = seeds(SLOW, draw, 1e-6), seeds(QUICK, draw, 1e-6)
    tokens, low, high = crossing["overtaking"](TOKENS, slow, quick)
    assert tokens == pytest.approx(CROSSED, rel=0.01) and low <= CROSSED <= high and high - low <= 1e5
    assert crossing["overtaking"](TOKENS, quick, slow) is None


def test_of_crossings_at_least_95_percent_are_in_their_interval(crossing: dict[str, Any]) -> None:
    draw, times = np.random.default_rng(1), 400
    found = [crossing["overtaking"](TOKENS, seeds(SLOW, draw, 0.03), seeds(QUICK, draw, 0.03)) for _ in range(times)]
    certain = [one for one in found if one is not None]
    inside = sum(low <= CROSSED <= high for _, low, high in certain)
    assert len(certain) > 0.9 * times and inside >= 0.95 * len(certain)


def test_none_overtakes_what_is_not_certainly_behind(crossing: dict[str, Any]) -> None:
    draw, times = np.random.default_rng(2), 200
    equal = [crossing["overtaking"](TOKENS, seeds(SLOW, draw, 0.03), seeds(SLOW, draw, 0.03)) for _ in range(times)]
    assert sum(one is not None for one in equal) <= 0.05 * times
    better = QUICK - 0.5, QUICK
    assert crossing["overtaking"](TOKENS, *(seeds(one, draw, 0.01) for one in better)) is None, "ahead from the start"


def test_a_power_law_foretells_the_point_that_was_held_back(crossing: dict[str, Any]) -> None:
    draw = np.random.default_rng(3)
    law = crossing["power_law"](TOKENS, seeds(curve(1.1, 1.5, 0.5), draw, 0.002))
    assert law.exponent[0] == pytest.approx(0.5, abs=0.05) and law.loss[0] == pytest.approx(1.1, abs=0.05)
    for middle, low, high in (law.loss, law.exponent, law.predicted):
        assert low <= middle <= high
    assert law.predicted[0] == pytest.approx(curve(1.1, 1.5, 0.5)[-1], abs=0.003)
    changed = curve(1.1, 1.5, 0.5)
    changed[-1] = 9.0
    held_back = crossing["power_law"](TOKENS, np.stack([changed, changed]))
    assert held_back.predicted[0] == pytest.approx(curve(1.1, 1.5, 0.5)[-1], abs=1e-4) and held_back.measured == 9.0


def test_the_page_is_of_the_stored_curves(crossing: dict[str, Any]) -> None:
    if not crossing["STORED"].exists():
        pytest.skip("no curves are stored: make crossing")
    page = crossing["PAGE"].read_text(encoding="utf-8")
    found = re.search("<!-- crossing -->(.*?)<!-- end of crossing -->", page, re.DOTALL)
    assert found is not None
    for name, models in json.loads(crossing["STORED"].read_text(encoding="utf-8")).items():
        if models.keys() == crossing["MODELS"].keys():
            for lines in ([f"**{name} parameters**"], crossing["table"](models), crossing["overtakings"](models)):
                assert "\n".join(lines) in found[1]
