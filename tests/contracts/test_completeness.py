"""No concrete mixer and no positional encoding escapes the laws."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

import seqlab
from contracts.cases import D_MODEL, MAX_SEQ_LEN, MIXERS, POSITIONS
from seqlab.mixer import Mixer
from seqlab.positions import PositionalEncoding

NO_LAYERS = ("callbacks", "cli", "comparison", "config", "configs", "decoding", "tasks", "tracking", "trained")


def concrete_subclasses(base: type[Any]) -> set[type[Any]]:
    """Every class of seqlab below `base` that can be built, in the rooms that may define layers."""
    for room in pkgutil.iter_modules(seqlab.__path__, "seqlab."):
        if room.name.partition(".")[2] not in NO_LAYERS:
            package = importlib.import_module(room.name)
            for module in pkgutil.walk_packages(getattr(package, "__path__", []), f"{room.name}."):
                importlib.import_module(module.name)
    found: set[type[Any]] = set()
    queue = [base]
    while queue:
        subclasses = queue.pop().__subclasses__()
        found.update(cls for cls in subclasses if not inspect.isabstract(cls))
        queue.extend(subclasses)
    return {cls for cls in found if cls.__module__.startswith("seqlab.")}


@pytest.mark.parametrize(("base", "cases", "size"), [(Mixer, MIXERS, 0), (PositionalEncoding, POSITIONS, MAX_SEQ_LEN)])
def test_every_concrete_class_has_a_case(base: type, cases: list[Any], size: int) -> None:
    tested = {type(case.factory(D_MODEL, size)) for case in cases}
    missing = {cls.__qualname__ for cls in concrete_subclasses(base) - tested}
    assert not missing, f"{missing} need a line in tests/contracts/cases.py"
    assert len(tested) >= 3


@pytest.mark.parametrize("cases", [MIXERS, POSITIONS])
def test_names_of_cases_differ(cases: list[Any]) -> None:
    assert len({case.name for case in cases}) == len(cases)


def test_a_mixer_says_what_it_is() -> None:
    for case in MIXERS:
        mixer = case.factory(D_MODEL, 0)
        assert mixer.causal == case.causal
        assert hasattr(mixer, "attention_weights") == (case.attends or case.memory)
