"""A precision by the command line: a fit is stopped, goes on bit for bit, is tested, exported and proven."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import Precision

from cli.conftest import Seqlab, last_weights, send, write_text
from cli.test_stopped_fit import FIT
from seqlab.half_precision import HalfInputs
from seqlab.tasks.language_modeling import LanguageModeling

STORED = {
    "bf16-true": torch.bfloat16,
    "64-true": torch.float64,
    "bf16-mixed": torch.float32,
    "16-true": torch.float16,
}
QUICK = "bf16-true"


@pytest.fixture
def quick(tmp_path: Path, inside: Callable[[Path], Seqlab]) -> Seqlab:
    write_text(tmp_path)
    return inside(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize(
    "precision", [pytest.param(one, marks=[] if one == QUICK else pytest.mark.slow) for one in STORED]
)
def test_from_a_fit_to_a_proven_bundle(quick: Seqlab, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    fit = (*FIT, f"--trainer.precision={precision}")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, 3)
        quick(*fit, "--run_name=stopped", code=143)
    quick("resume", "stopped")
    quick(*fit, "--run_name=whole")
    resumed, whole = last_weights("stopped"), last_weights("whole")
    assert {weight.dtype for weight in whole.values()} == {STORED[precision]}
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    assert re.search(r"test/loss .* 3\.\d+", quick("test", "whole").stdout)
    assert "greedy" in quick("export", "whole", "--out=bundle").stdout
    quick("verify", "bundle")


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "given"), [("bf16-true", {HalfInputs}), ("32-true", {Precision})])
def test_a_fit_reads_its_batches_by_its_precision(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch, precision: str, given: set[type]
) -> None:
    train, found = LanguageModeling.training_step, set()

    def sees(self: LanguageModeling, batch: Any, batch_idx: int) -> Any:
        found.add(type(self.trainer.precision_plugin))
        return train(self, batch, batch_idx)

    monkeypatch.setattr(LanguageModeling, "training_step", sees)
    quick(*FIT, "--trainer.max_steps=1", "--trainer.logger=false", f"--trainer.precision={precision}")
    assert found == given


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("16-mixed", "trainer.precision is 16-mixed, which a CPU does not have; give bf16-mixed or 32-true"),
        ("transformer-engine", "needs the package transformer_engine, which is not installed; `pip install"),
    ],
)
def test_what_cannot_be_computed_is_refused(quick: Seqlab, precision: str, said: str) -> None:
    (line,) = quick(*FIT, f"--trainer.precision={precision}", code=2).stderr.splitlines()
    assert said in line
