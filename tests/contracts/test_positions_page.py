"""docs/positions.md says what the classes are."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import seqlab.positions
from contracts.subjects import decoder_subject
from contracts.test_completeness import concrete_subclasses
from seqlab.attention import Attention
from seqlab.positions import Learned, NoPositions, PositionalEncoding, RoPE, T5Bias
from seqlab.recurrence import GRU

PAGE = (Path(__file__).parents[2] / "docs" / "positions.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `[A-Z].*", PAGE, flags=re.MULTILINE)
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES]
SIZES = {"d_model": 24, "max_seq_len": 40, "num_heads": 3, "head_dim": 8}


def _number(cell: str, encoding: PositionalEncoding) -> int | None:
    """Value of the first formula in a cell; None without one."""
    formula = re.match(r"`(.*?)`", cell)
    return eval(formula[1], {}, vars(encoding) | SIZES) if formula else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table(row: list[str]) -> None:
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


def test_the_refusals() -> None:
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
