"""No concrete mixer and no positional encoding escapes the laws, and docs/positions.md says what the encodings are."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import seqlab
import seqlab.positions
from contracts.cases import D_MODEL, MAX_SEQ_LEN, MIXERS, POSITIONS
from contracts.subjects import decoder_subject
from seqlab.attention import Attention
from seqlab.mixer import Mixer
from seqlab.positions import Learned, NoPositions, PositionalEncoding, RoPE, T5Bias
from seqlab.recurrence import GRU

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


def test_a_mixer_says_what_it_is() -> None:
    for case in MIXERS:
        mixer = case.factory(D_MODEL, 0)
        assert mixer.causal == case.causal
        assert hasattr(mixer, "attention_weights") == (case.attends or case.own_positions or case.memory)


PAGE = (Path(__file__).parents[2] / "docs" / "positions.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `[A-Z].*", PAGE, flags=re.MULTILINE)
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES]
SIZES = {"d_model": 24, "max_seq_len": 40, "num_heads": 3, "head_dim": 8}


def _number(cell: str, encoding: PositionalEncoding) -> int | None:
    """Value of the first formula in a cell; None without one."""
    formula = re.match(r"`(.*?)`", cell)
    return eval(formula[1], {}, vars(encoding) | SIZES) if formula else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table_of_positions(row: list[str]) -> None:
    name, source, acts_on, tells, parameters, longest = row
    cls = getattr(seqlab.positions, name.strip("`"))
    encoding = cls(SIZES["d_model"], SIZES["max_seq_len"])
    encoding.attach(SIZES["num_heads"], SIZES["head_dim"])
    documented = f"{sys.modules[cls.__module__].__doc__}{cls.__doc__}"
    assert source in documented
    assert source or not re.search(r"et al", documented)
    assert acts_on == encoding.acts_on
    assert tells == ("nothing" if cls is NoPositions else "relative" if encoding.relative else "absolute")
    assert _number(parameters, encoding) == sum(parameter.numel() for parameter in encoding.parameters())
    assert _number(longest, encoding) == encoding.max_seq_len
    assert encoding.max_seq_len is not None or longest == "no limit"


def test_every_encoding_has_a_row() -> None:
    assert {row[0].strip("`") for row in ROWS} == {cls.__name__ for cls in concrete_subclasses(PositionalEncoding)}


def test_the_refusals_of_the_page() -> None:
    attempts = [
        lambda: decoder_subject(GRU, RoPE),
        lambda: decoder_subject([partial(Attention, num_heads=2), partial(Attention, num_heads=4)], T5Bias),
        lambda: Learned(4, 8).embed(torch.zeros(1, 9, 4), torch.arange(9)[None]),
    ]
    found = []
    for attempt in attempts:
        with pytest.raises(ValueError) as error:
            attempt()
        found.append(f"{error.value}\n")
    assert "".join(found) in PAGE
