"""The conformance matrix: what is in it, that its numbers are measured, and that a broken mixer shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.test_completeness import concrete_subclasses
from seqlab.attention import Attention, AttentionPart, Bidirectional, PaTHAttention
from seqlab.cli import main
from seqlab.mixer import Mixer, State
from seqlab.positions import NoPositions, PositionalEncoding, RoPE
from seqlab.recurrence import GRU
from seqlab_export.reports.conformance import (
    CHECKS,
    Cell,
    ConformanceRow,
    all_mixers,
    all_positions,
    conformance,
    measure_mixer,
)

MATRIX = json.loads((Path(__file__).parents[2] / "docs" / "conformance.json").read_text(encoding="utf-8"))
COMMITTED = {(row["mixer"], row["positions"]): row for row in MATRIX}
SMALLEST = 1e-16
"""Smallest error that is compared. A law's error below it is only noise."""


def measured(mixer: type[Mixer], encoding: type[PositionalEncoding]) -> ConformanceRow:
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


def spoilt(**methods: Any) -> type[Mixer]:
    """A GRU with other methods."""
    return type("Spoilt", (GRU,), methods)


def changed(change: Callable[[Tensor, State], tuple[Tensor, State]]) -> type[Mixer]:
    """A GRU that gives other outputs."""
    return spoilt(forward=lambda self, x, *args, **given: change(*GRU.forward(self, x, *args, **given)))


def later(self: Mixer, x_t: Tensor, state: State) -> tuple[Tensor, State]:
    raise NotImplementedError("later")


def begins_late(self: GRU, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Any:
    """Wrong for a row whose first call holds pads alone."""
    y, new = GRU.forward(self, x, state, pad_mask=pad_mask)
    late = torch.zeros(len(x), dtype=torch.bool) if state or pad_mask is None else ~pad_mask.any(1)
    return y, {"h": new["h"] + late.view(-1, *[1] * (new["h"].dim() - 1))}


FORGETFUL_STEP = spoilt(step=lambda self, x_t, state: GRU.step(self, x_t, {"h": torch.zeros_like(state["h"])}))


@pytest.mark.parametrize(
    ("mixer", "said"),
    [
        (
            spoilt(forward=lambda self, x, state=None, **given: GRU.forward(self, x, state)),
            "broken: padding changes nothing, padding changes nothing in chunks",
        ),
        (spoilt(forward=begins_late), "broken: padding changes nothing in chunks"),
        (FORGETFUL_STEP, "forward is the unrolled step"),
        (spoilt(step=later), "later"),
    ],
    ids=["unpadded", "begins late", "forgetful step", "unwritten"],
)
def test_each_broken_law_is_named(mixer: type[Mixer], said: str) -> None:
    assert said in str(measure_mixer(mixer, NoPositions)["laws"].failed)


@pytest.mark.slow
def test_a_broken_step_shows_in_the_graph() -> None:
    cells = measured(FORGETFUL_STEP, NoPositions).cells
    assert cells["laws"].error is not None and cells["laws"].error > 1e-3
    assert str(cells["ONNX step"]).startswith("failed: this model's step and forward differ")


@pytest.mark.slow
def test_a_cache_that_a_pad_changes_shows_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its logits are right: the verdict needs the state."""
    monkeypatch.setattr(PaTHAttention, "state_spec", lambda self: (self.conv.entry, *Attention.state_spec(self)))
    assert "(length 2, padded, new_state_0_k)" in str(measured(PaTHAttention, NoPositions).cells["ONNX step"].failed)


def test_a_broken_forward_is_a_failure_and_not_unsupported() -> None:
    broken = changed(lambda y, state: (y.new_zeros(1) @ y.new_zeros(2), {}))
    assert all(str(cell).startswith("failed: ") for cell in measured(broken, NoPositions).cells.values())


def test_only_float16_may_overflow() -> None:
    def grown(factor: float) -> dict[str, Cell]:
        return measure_mixer(changed(lambda y, state: (y * factor, state)), NoPositions)

    assert grown(1e5)["fp16"].unsupported == "overflows in float16" and grown(1e5)["fp32"].error is not None
    overgrown = grown(1e39)["fp32"]
    assert overgrown.failed == "overflows in float32" and overgrown.unsupported is None


def test_the_command_writes_both_files_where_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["conformance", "--mixers", "GRU", "--positions", "RoPE"]) == 0
    assert "RoPE acts on" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert main(["conformance", "--mixers", "GRU", "--positions", "RoPE", "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "conformance.json").read_text())
    assert row["mixer"] == "GRU" and "RoPE" in row["laws"]["unsupported"]
    assert "| GRU | RoPE | unsupported: RoPE acts on" in (tmp_path / "conformance.md").read_text()
    assert main(["conformance", "--mixers", "GRUU"]) == 2
    assert "there is no GRUU; did you mean GRU?" in capsys.readouterr().err
    for path, said in (
        ("nowhere.Mine", "No module named"),
        ("seqlab.nn.Block", "is not a Mixer"),
        ("torch.no", "is not"),
    ):
        assert main(["conformance", "--mixers", path]) == 2
        error = capsys.readouterr().err
        assert said in error and "a Mixer of your own has a class path" in error
