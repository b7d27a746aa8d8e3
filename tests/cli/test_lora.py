"""`--lora` as it is typed, from a run to its bundle."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch

from cli.conftest import TINY, Seqlab, last_weights, same_weights
from seqlab.checkpoints.io import read_checkpoint
from seqlab.nn.lora import LowRankLinear, merge
from seqlab.tracking.runs import find_run
from seqlab.trained.load import load_run
from seqlab.trained.transfer import begin_with

FIT = ("fit", "--config=lm/attention-rope", *TINY, "--model.schedule=Constant")
LORA = (*FIT, "--init_from=first", "--lora.rank", "4", "--lora.alpha", "8")
FROZEN = "model.stack.blocks.0.mixer.q_proj.frozen"


@pytest.fixture(name="typed")
def _typed(theirs: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    """The command in a folder with a copy of the run `first`."""
    return inside(theirs)


def test_a_fit_goes_on_exactly_and_without_the_first_run(typed: Seqlab, theirs: Path) -> None:
    dropout = ("--model.model.dropout=0.1", "--ema=0.9")
    said = typed(*LORA, *dropout, "--run_name=stopped").stderr
    assert "1,152 of the parameters are" in " ".join(said.split())
    typed(*LORA, *dropout, "--run_name=whole", "--trainer.max_steps=8")
    first = find_run("first")
    (folder,) = theirs.glob(f"mlruns/*/{first.id}")
    shutil.rmtree(folder / "artifacts" / "checkpoints")
    typed("resume", "stopped", "--trainer.max_steps=8")
    assert same_weights("stopped", "whole")


def test_a_run_is_used_like_any_other(typed: Seqlab) -> None:
    """It is scored, decodes, and is the start of another fit, with its updates merged."""
    typed(*LORA, "--run_name=tuned")
    found, first = last_weights("tuned"), _best("first")
    assert torch.equal(found["model.embedding.weight"], first["model.embedding.weight"])
    assert torch.equal(found[FROZEN], first[FROZEN.replace("frozen", "weight")])
    losses = [value for _, value in find_run("tuned").history("val/loss")]
    said = re.search(r"val/loss\W+([\d.]+)", typed("validate", "tuned").stdout)
    assert said and float(said[1]) == pytest.approx(min(losses), rel=1e-5)
    assert typed("generate", "tuned", "--prompt=the", "--max-new-tokens=3").stdout
    typed(*FIT, "--init_from=tuned", "--run_name=again", "--lora.targets=q_proj", "--trainer.precision=bf16-mixed")
    merge(task := load_run("tuned").task)
    assert torch.equal(_best("again")[FROZEN], task.state_dict()[FROZEN.replace("frozen", "weight")])
    assert sum(isinstance(part, LowRankLinear) for part in load_run("again").model.modules()) == 1
    begin_with(task, "again")
    merge(again := load_run("again").task)
    assert all(torch.equal(weight, task.state_dict()[name]) for name, weight in again.state_dict().items())


def _best(run: str) -> dict[str, torch.Tensor]:
    checkpoint = find_run(run).checkpoint
    assert checkpoint is not None
    found: dict[str, torch.Tensor] = read_checkpoint(checkpoint)["state_dict"]
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_a_bundle_has_the_nodes_of_the_plain_model(typed: Seqlab) -> None:
    """And is proven against the model with its updates, as float64 computes it."""
    typed(*LORA, "--run_name=tuned", "--model.lr=0.1")
    graphs = []
    for run in ("first", "tuned"):
        typed("export", run, f"--out={run}")
        graph = onnx.load(Path(run) / "model.onnx", load_external_data=False).graph
        graphs.append([[node.op_type for node in graph.node], sorted(weight.name for weight in graph.initializer)])
    assert graphs[0] == graphs[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lora.rank=0"], "--lora.rank must be at least 1, got 0"),
        (["--lora.alpha=-1"], "--lora.alpha must be above 0, got -1.0"),
        (["--lora.rank=x"], "lora.rank: Expected an int. Got value: x"),
        (["--lora.rank=17"], "--lora.rank 17 is above 16, the smaller dimension of stack.blocks.0.mixer.q_proj.weight"),
        (["--lora.targets=nothing"], "--lora.targets nothing matches no weight of a linear layer; accepted, in any"),
        (["--init_from=null"], "--lora updates the weights of a trained model; give --init_from RUN, or omit --lora"),
        (["--mup=true"], "--mup scales the initial weights of a new model, and --lora keeps those of a run; omit one"),
        (
            ["--trainer.strategy=tp", "--trainer.devices=2", "--trainer.accelerator=cpu"],
            "--trainer.strategy tp cuts the linear layers that --lora updates; use fsdp2 or ddp",
        ),
    ],
)
def test_what_is_refused_leaves_no_run(options: list[str], said: str, fitted: Path, beside_first: Seqlab) -> None:
    before = sorted(fitted.glob("mlruns/**/*"))
    assert beside_first(*LORA, *options, code=2).stderr.splitlines()[-1].startswith(f"seqlab: {said}")
    assert sorted(fitted.glob("mlruns/**/*")) == before
