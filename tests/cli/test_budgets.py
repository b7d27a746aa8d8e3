"""Costs of a model: `estimate` against sums by hand, sizes that `--match` solves, and the parts of `profile`."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.autograd.profiler_util import FunctionEvent

import seqlab.callbacks.step_seconds as timing
import seqlab.cli.matched as matching
import seqlab.cli.profiled
from cli.conftest import TINY, Seqlab, same_weights
from seqlab.budgets.match import Cost
from seqlab.budgets.parts import Part
from seqlab.budgets.shares import STEP, Time, shares
from seqlab.callbacks.step_seconds import step_seconds
from seqlab.config.configs import config_path, load_short_yaml
from seqlab.tracking.runs import find_run


def test_gpt2_by_hand(quick: Seqlab) -> None:
    """Every token passes 12 layers of 7,077,888 weights in matrices, the output layer of 50,257 x 768, and attention to
    1,024 places, two products of 768 in each layer."""
    flops = 6 * (12 * 7_077_888 + 50_257 * 768 + 12 * 2 * 1024 * 768)
    args = ["--config=presets/gpt2", "--device=H200", "--devices=8", "--mfu=0.5", "--tokens=1e10", "--price=2"]
    said = quick("estimate", *args).stdout.splitlines()
    days = flops * 1e10 / (8 * 989e12 * 0.5) / 86400
    assert said[0] == f"124,439,808 parameters, {flops:.4g} FLOPs of training a token"
    assert said[1] == f"{days:.3g} days for 1e+10 tokens on 8 H200"
    assert said[2] == f"cost {days * 24 * 8 * 2:,.0f}"
    # The matrices in bfloat16: those of one layer where each computes again.
    kept, again = said[3].removeprefix("activations of 1,024 tokens: ").split("; with --checkpoint_activations ")
    assert kept.startswith(f"{2 * 12 * 7_077_888 / 1e9:.3g} GB and 0.3")
    assert again.startswith(f"{2 * 7_077_888 / 1e9:.3g} GB and 0.0")
    assert said[4].startswith("ddp: 2.0 GB of 141 a device, fits, with 3")
    assert said[5].startswith("fsdp2: 0.2 GB")


@pytest.mark.parametrize("text", ["model: [", "- 1", "data: x", "model: 3\ndata: {class_path: x, seq_len: 8}"])
def test_what_is_no_config(text: str, tmp_path: Path, quick: Seqlab) -> None:
    (config := tmp_path / "mine.yaml").write_text(text)
    assert f"seqlab: --config {config} " in quick("estimate", f"--config={config}", "--tokens=1e9", code=2).stderr
    if "data" not in text:
        quick("fit", f"--config={config}", "--help", code=2)


GRU = ("fit", "--config=lm/gru", *(option for option in TINY if "d_model" not in option), "--trainer.max_steps=2")


@pytest.mark.slow
def test_a_fit_is_the_one_that_was_given_the_width(quick: Seqlab) -> None:
    """Bit for bit; the run has the width, and goes on with it."""
    said = quick(*GRU, "--match=params", "--to=20000", "--run_name=matched").stderr
    run = find_run("matched")
    assert run.metrics["num_params"] == pytest.approx(20000, rel=0.02)
    assert run.metrics["num_flops"] > 6 * 15000  # all but the vectors
    assert run.tags["matched"] == "params 20000"
    width = run.config["model"]["init_args"]["model"]["init_args"]["d_model"]
    (line,) = (line for line in said.splitlines() if line.startswith("matched"))
    assert line.startswith(f"matched {run.metrics['num_params']:,.0f} parameters (")
    assert f"% of 20,000) by d_model {width} (was 128); not matched: " in line
    assert f"{4 * run.metrics['state_size']:,.0f} bytes of state" in line

    quick(*GRU, f"--model.model.d_model={width}", "--run_name=given")
    assert same_weights("matched", "given")

    assert "matched" not in quick("resume", "matched", "--trainer.max_steps=3").stderr
    assert find_run("matched").metrics["num_params"] == run.metrics["num_params"]
    assert "a resumed run keeps its size" in quick("resume", "matched", "--to=30000", code=2).stderr


@pytest.mark.slow
def test_seconds_are_measured_by_a_fit_of_each_width(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by a microsecond per parameter at each reading."""
    clock = SimpleNamespace(now=0.0, tick=0.0)

    def look() -> float:
        clock.now += clock.tick
        return clock.now

    def measured(task: Any, *rest: Any) -> Cost:
        clock.tick = 1e-6 * sum(weight.numel() for weight in task.parameters())
        return step_seconds(task, *rest)

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=look))
    monkeypatch.setattr(timing, "TIMED", 2)
    monkeypatch.setattr(matching, "step_seconds", measured)
    options = "--match=seconds", "--to=0.0105", "--trainer.accumulate_grad_batches=2", "--checkpoint_activations=true"
    said = quick(*GRU, *options, "--model.model.d_model=16", "--match_by=num_layers", "--run_name=timed").stderr
    run = find_run("timed")
    assert run.metrics["num_params"] == pytest.approx(10500, rel=0.02) and run.tags["matched"] == "seconds 0.0105"
    assert run.tags["matched.costs"] in said.splitlines()
    stored = run.config
    assert stored["model"]["init_args"]["model"]["init_args"]["num_layers"] == 3
    assert (stored["match"], stored["to"]) == (None, None)  # or whoever fits it again would measure again
    assert run.tags["matched.costs"].startswith(f"matched {run.metrics['num_params'] * 1e-6:.4g} seconds a step (")


def test_a_budget_between_two_sizes_is_refused_before_there_is_a_run(quick: Seqlab) -> None:
    options = ("--match=state", "--to=9e3", "--model.model.mixer.num_layers=2", "--match_by=num_layers")
    (line,) = quick(*GRU, *options, code=2).stderr.splitlines()
    assert "8 gives 8,192 and 9 gives 9,216: neither" in line
    assert not Path("mlruns").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to": None}, "--match needs --to, and --to needs --match: a budget and its amount"),
        ({"match": None}, "--match needs --to, and --to needs --match: a budget and its amount"),
        *(({"to": to}, f"--to must be above 0, got {to:g}") for to in (-1.0, 0.0)),
        ({"match_by": "width"}, "the model has no such number"),
        ({"match_by": "tie_embeddings"}, "is True; name a whole number of the model"),
        ({"match": "seconds", "resume": "auto"}, "find it first, then give d_model"),
        ({"match": "seconds", "ckpt_path": "last"}, "find it first, then give d_model"),
    ],
)
def test_what_cannot_be_matched_is_said(given: dict[str, Any], said: str) -> None:
    options = {"match": "params", "to": 9e3, "match_by": "d_model", "resume": None, "ckpt_path": None} | given
    config = load_short_yaml(config_path("lm/gru").read_text(encoding="utf-8"))
    config["data"]["init_args"]["path"] = "text.txt"
    config["model"]["init_args"]["model"]["init_args"]["tie_embeddings"] = True
    with pytest.raises(ValueError, match=re.escape(said)):
        matching.matched(SimpleNamespace(**options), config)


def test_seconds_are_measured_in_one_process() -> None:
    trainer = {"num_nodes": 1, "precision": None, "accumulate_grad_batches": 1, "accelerator": "cpu", "devices": 2}
    trainer |= {"gradient_clip_val": None, "gradient_clip_algorithm": None}
    with pytest.raises(ValueError, match="--match seconds measures one process; find the number with"):
        step_seconds(None, None, SimpleNamespace(trainer=SimpleNamespace(**trainer), tokens_per_step=None))


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
        ("--compile=true", "profile cannot tell apart the parts of a compiled model; leave --compile out"),
        ("--trainer.devices=2", "profile measures one process; give --trainer.devices 1"),
        ("--trainer.max_time=00:00:00:00", "the fit ended after "),
    ],
)
def test_what_cannot_be_profiled_is_said(quick: Seqlab, given: str, said: str) -> None:
    done = quick("profile", *PLAIN, given, code=2)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("seqlab:"))
    assert said in line
    assert not Path("mlruns").exists() and not list(Path().glob("*/*trace*"))
