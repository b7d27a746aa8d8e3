"""A run whose model was spread over two processes: every verb reads its shards, and `consolidate` makes one file."""

from __future__ import annotations

import mlflow  # noqa: F401  # once, before there are two processes
import pytest
import torch

from cli.conftest import TINY, Seqlab
from scale.forked import forked
from seqlab.checkpoints.checksummed_file import load_sealed
from seqlab.checkpoints.io import read_checkpoint
from seqlab.cli import (
    lightning_cli,  # noqa: F401  # as mlflow
    main,
)
from seqlab.tracking.runs import find_run

FIT = ["fit", "--config=lm/gru", *TINY, "--run_name=spread", "--trainer.accelerator=cpu", "--checkpoint_async=true"]
SPREAD = ["--trainer.strategy=fsdp2", "--trainer.devices=2"]
ALONE = ["--trainer.strategy=auto", "--trainer.devices=1"]


@pytest.mark.slow
def test_a_run_of_two_processes(quick: Seqlab) -> None:
    assert forked(2, lambda: _exits(*FIT, *SPREAD), timeout=240) == [0, 0]
    run = find_run("spread")
    best = run.best_checkpoint
    assert run.status == "FINISHED" and best is not None and "shards" in load_sealed(best)

    whole = best.with_name("best.consolidated.ckpt")
    said = quick("consolidate", "spread").stdout
    assert said == f"Checkpoint {whole} · next: seqlab export {whole} --out bundles/best\n"
    stored, shards = torch.load(whole, weights_only=True), read_checkpoint(best)
    assert stored["state_dict"].keys() == shards["state_dict"].keys()
    assert all(torch.equal(weight, shards["state_dict"][name]) for name, weight in stored["state_dict"].items())
    refused = quick("consolidate", str(whole), code=2).stderr
    assert refused == f"seqlab: checkpoint {whole} is already one file; there is nothing to consolidate\n"

    quick("export", "spread", "--out=bundle")
    quick("verify", "bundle")
    refused = quick("resume", "spread", "--trainer.max_steps=6", *ALONE, code=2).stderr
    assert "over 2 processes and can only continue by that" in refused
    for file in best.parent.glob("best.ckpt.shards-*/__1_*"):
        file.unlink()
    assert f"checkpoint {best} is not whole: " in quick("export", "spread", "--out=other", code=2).stderr


def _exits(*args: str) -> None:
    if code := main(list(args)):
        raise SystemExit(code)
