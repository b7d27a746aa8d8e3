"""The conformance matrix: what is in it, that its numbers are measured, and that a broken mixer shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.test_completeness import concrete_subclasses
from seqlab.attention import Attention, AttentionPart, Bidirectional
from seqlab.cli import main
from seqlab.mixer import Mixer, State
from seqlab.positions import NoPositions, PositionalEncoding, RoPE
from seqlab.recurrence import GRU
from seqlab_export.matrices.conformance import (
    CHECKS,
    Cell,
    Row,
    all_mixers,
    all_positions,
    conformance,
    measure_mixer,
)

MATRIX = json.loads((Path(__file__).parents[2] / "docs" / "conformance.json").read_text(encoding="utf-8"))
COMMITTED = {(row["mixer"], row["positions"]): row for row in MATRIX}
SMALLEST = 1e-16
"""Smallest error that is compared. A law's error below it is only noise."""


def measured(mixer: type[Mixer], encoding: type[PositionalEncoding]) -> Row:
    (row,) = conformance({"mixer": mixer}, {"encoding": encoding})
    assert tuple(row.cells) == CHECKS
    return row


def test_nothing_of_the_library_is_left_out() -> None:
    named = set(all_mixers())
    assert {cls.__name__ for cls in concrete_subclasses(Mixer)} <= named
    assert {f"Attention, {cls.__name__}" for cls in concrete_subclasses(AttentionPart)} <= named
    assert {cls.__name__ for cls in concrete_subclasses(PositionalEncoding)} == set(all_positions())


def test_the_committed_matrix_is_of_this_library() -> None:
    assert list(COMMITTED) == [(mixer, positions) for mixer in all_mixers() for positions in all_positions()]
    assert all(set(CHECKS) < set(row) for row in MATRIX)
    assert not [row for row in MATRIX if any("failed" in row[check] for check in CHECKS)]


@pytest.mark.parametrize("mixer", all_mixers())
def test_the_committed_matrix_holds(mixer: str) -> None:
    """Each mixer without positions, attention with every encoding; the command measures all pairs."""
    for positions in all_positions() if mixer == "Attention" else ["NoPositions"]:
        pair = (mixer, positions)
        agree(pair, measure_mixer(all_mixers()[mixer], all_positions()[positions]))


def agree(pair: tuple[str, str], cells: dict[str, Cell]) -> None:
    """Requires the same status, the same reason, and errors within a factor of ten."""
    for check, cell in cells.items():
        committed = Cell(**COMMITTED[pair][check])
        assert (committed.unsupported, committed.failed) == (cell.unsupported, cell.failed), (pair, check)
        if cell.error is not None and committed.error is not None:
            ours, theirs = max(cell.error, SMALLEST), max(committed.error, SMALLEST)
            assert theirs / 10 <= ours <= 10 * theirs, (pair, check, cell.error, committed.error)


@pytest.mark.slow
def test_every_cell_is_an_error_of_its_precision() -> None:
    cells = measured(Attention, RoPE).cells
    agree(("Attention", "RoPE"), cells)
    ranges = {"laws": (0, 1e-13), "fp32": (1e-9, 1e-5), "bf16": (1e-4, 5e-2), "fp16": (1e-5, 5e-3)}
    for name, (least, most) in (ranges | {"ONNX full": (1e-12, 1e-5), "ONNX step": (1e-12, 1e-5)}).items():
        error = cells[name].error
        assert error is not None and least <= error <= most, (name, error)


def test_a_pair_that_does_not_fit_says_why() -> None:
    cells = measured(GRU, RoPE).cells
    agree(("GRU", "RoPE"), cells)
    assert all("RoPE acts on" in str(cell) for cell in cells.values())


@pytest.mark.slow
def test_a_step_of_what_is_not_causal_says_why() -> None:
    class Both(Attention):
        def __init__(self, d_model: int, layer: int = 0) -> None:
            super().__init__(d_model, layer, pattern=Bidirectional)

    cells = measured(Both, NoPositions).cells
    assert cells["laws"].error is not None and "not causal" in str(cells["ONNX step"])


@pytest.mark.slow
def test_a_broken_step_shows() -> None:
    class Forgetful(GRU):
        def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
            return super().step(x_t, {name: torch.zeros_like(entry) for name, entry in state.items()})

    cells = measured(Forgetful, NoPositions).cells
    assert cells["laws"].error is not None and cells["laws"].error > 1e-3
    assert "forward is the unrolled step" in str(cells["laws"].failed)
    assert str(cells["ONNX step"]).startswith("failed: this model's step and forward differ")


def test_each_broken_law_is_named() -> None:
    class Forgetful(GRU):
        def forward(self, x: Tensor, state: State | None = None, **kwargs: Any) -> tuple[Tensor, State]:
            return super().forward(x, None, **kwargs)

    class Unpadded(GRU):
        def forward(self, x: Tensor, state: State | None = None, **kwargs: Any) -> tuple[Tensor, State]:
            return super().forward(x, state)

    class Undeclared(GRU):
        def forward(self, x: Tensor, state: State | None = None, **kwargs: Any) -> tuple[Tensor, State]:
            y, state = super().forward(x, state, **kwargs)
            return y, {"h": torch.cat((state["h"], state["h"]), dim=1)}

    mixers = (Forgetful, Unpadded, Undeclared)
    forgetful, unpadded, undeclared = (measure_mixer(mixer, NoPositions)["laws"] for mixer in mixers)
    assert "forward is forward in chunks" in str(forgetful.failed)
    assert unpadded.failed == "broken: padding changes nothing, padding changes nothing in chunks"
    assert undeclared.failed == (
        "state entry 0_h is declared by state_spec as (B, 1, 32) in torch.float64, and is (1, 2, 32) in torch.float64 "
        "after 37 tokens"
    )


def test_a_broken_forward_is_a_failure_and_not_unsupported() -> None:
    class Broken(GRU):
        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, State]:
            return x.new_zeros(1) @ x.new_zeros(2), {}

    cells = measured(Broken, NoPositions).cells
    assert all(str(cell).startswith("failed: ") for cell in cells.values())


def test_only_float16_may_overflow_and_nothing_may_be_left_unwritten() -> None:
    class Grown(GRU):
        factor = 1e5

        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, State]:
            y, state = super().forward(x, *args, **kwargs)
            return y * self.factor, state

    class Overgrown(Grown):
        factor = 1e39

    class Unwritten(GRU):
        def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
            raise NotImplementedError("later")

    grown, overgrown = (measure_mixer(mixer, NoPositions) for mixer in (Grown, Overgrown))
    assert grown["fp16"].unsupported == "overflows in float16" and grown["fp32"].error is not None
    assert overgrown["fp32"].failed == "overflows in float32" and overgrown["fp32"].unsupported is None
    assert measure_mixer(Unwritten, NoPositions)["laws"].failed == "later"


def test_the_command_writes_both_files_where_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["conformance", "--mixers", "GRU", "--positions", "RoPE"]) == 0
    assert "RoPE acts on" in capsys.readouterr().out and not list(tmp_path.iterdir())
    options = ["--mixers", "GRU", "--positions", "RoPE", "--out", str(tmp_path)]
    assert main(["conformance", *options]) == 0
    (row,) = json.loads((tmp_path / "conformance.json").read_text())
    assert row["mixer"] == "GRU" and "RoPE" in row["laws"]["unsupported"]
    assert "| GRU | RoPE | unsupported: RoPE acts on" in (tmp_path / "conformance.md").read_text()
    assert main(["conformance", "--mixers", "GRUU"]) == 2
    assert "there is no GRUU; did you mean GRU?" in capsys.readouterr().err
    for path, said in (("nowhere.Mine", "No module named"), ("seqlab.nn.Block", "is no Mixer"), ("torch.no", "is no")):
        assert main(["conformance", "--mixers", path]) == 2
        error = capsys.readouterr().err
        assert said in error and "a Mixer of your own has a class path" in error
