"""`seqlab profile`: which part of a model each operation belongs to, and what is said of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from torch.autograd.profiler_util import FunctionEvent

import seqlab.cli.profiled
from cli.conftest import TINY, Seqlab
from seqlab.budgets.parts import Part
from seqlab.budgets.shares import STEP, Time, shares

BUSY = """
from seqlab.recurrence import CausalConv

class Busy(CausalConv):
    def forward(self, x, state=None, *, pad_mask=None):
        for _ in range(200):
            x = x.sin()
        return super().forward(x, state, pad_mask=pad_mask)
"""
PLAIN = ("--config=lm/gru", *TINY)
ARGS = (*PLAIN, "--model.model.num_layers=3", "--model.model.mixer=[CausalConv, busy.Busy, busy.Busy]")


@pytest.fixture
def here(quick: Seqlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seqlab:
    (tmp_path / "busy.py").write_text(BUSY)
    monkeypatch.syspath_prepend(tmp_path)
    return quick


def only(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Time is the number of the operations whose name begins so."""
    count = property(lambda event: 1e3 * event.name.startswith(name))
    monkeypatch.setattr(FunctionEvent, "self_cpu_time_total", count)


@pytest.mark.slow
@pytest.mark.parametrize("again", [1, 2], ids=["kept", "checkpointed"])
def test_both_passes_count_to_the_block_that_they_are_of(
    here: Seqlab, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    taken: list[Any] = []

    def noted(events: Any, parts: dict[str, Part]) -> dict[Part, Time]:
        taken[:] = [events, parts, shares(events, parts)]
        only(monkeypatch, "aten::")
        return shares(events, parts)

    monkeypatch.setattr(seqlab.cli.profiled, "shares", noted)
    said = here("profile", *ARGS, "--steps=1", f"--checkpoint_activations={again == 2}").stdout.splitlines()
    events, parts, found = taken
    steps = [event.cpu_time_total for event in events if event.name.startswith(STEP)]
    assert len(steps) == 1 and sum(time.both for time in found.values()) == pytest.approx(sum(steps) / 1e3)

    def of(name: str) -> dict[Part, Time]:
        only(monkeypatch, name)
        return {part: time for part, time in shares(events, parts).items() if time.both}

    busy = [Part("mixer", "Busy", "", block) for block in (1, 2)]
    assert of("aten::sin") == dict.fromkeys(busy, Time(again * 200, 0))
    assert of("aten::cos") == dict.fromkeys(busy, Time(0, 200))
    assert of("aten::embedding_dense_backward") == {Part("embedding"): Time(0, 1)}
    assert of("aten::_log_softmax_backward_data") == {Part("loss"): Time(0, 1)}
    assert of("aten::native_layer_norm_backward").keys() == {
        *(Part("norm", "LayerNorm", "", block) for block in (0, 1, 2, None))
    }
    assert of("aten::gelu_backward") == {Part("feed-forward", "GELU", "", block): Time(0, 1) for block in range(3)}
    assert of("aten::addcdiv").keys() == {Part("optimiser")}

    (row,) = (line for line in said if line.startswith("block 2 mixer Busy"))
    assert row.endswith("%") and said[-2].startswith("the ")
    largest = said.index(next(line for line in said if line.startswith("A step takes"))) + 1
    assert said[largest].startswith("the mixer Busy of blocks 1-2 takes ")
    assert int(said[largest].partition(" takes ")[2].partition("%")[0]) > 30
    assert "traceEvents" in json.loads(gzip.decompress(Path("profile/trace.json.gz").read_bytes()))
    assert not Path("mlruns").exists()


@pytest.mark.cuda
def test_kernels_on_a_gpu(here: Seqlab) -> None:
    said = here("profile", *ARGS, "--steps=1", "--trainer.accelerator=gpu").stdout.splitlines()
    rows = {line.rsplit(maxsplit=3)[0]: line for line in said if line.endswith("%")}
    assert {"waiting", "optimiser", "block 2 mixer Busy"} <= rows.keys()
    assert all(float(number) > 0 for number in rows["block 2 mixer Busy"].rstrip("%").split()[-3:])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--steps=0", "--steps must be at least 1, got 0"),
        ("--out=text.txt", "text.txt"),
        ("--compile=true", "profile cannot tell apart the parts of a model that is compiled; leave --compile out"),
        ("--trainer.devices=2", "profile looks at one process; give --trainer.devices 1"),
        ("--trainer.max_time=00:00:00:00", "the fit ended after "),
    ],
)
def test_what_cannot_be_profiled_is_said(quick: Seqlab, given: str, said: str) -> None:
    done = quick("profile", *PLAIN, given, code=2)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("seqlab:"))
    assert said in line
    assert not Path("mlruns").exists() and not list(Path().glob("*/*trace*"))
