"""Imports of a fit, and its flags: limits, a precision up to the proven bundle, compilation."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import lightning as L
import pytest
import torch
import yaml

from cli.conftest import TINY, Seqlab, before_steps, last_weights, same_weights, send, write_text
from seqlab.half_precision import HalfInputs

FIT = ("fit", "--config", "lm/gru", *TINY, "--trainer.max_steps=6", "--trainer.val_check_interval=9")


def test_one_batch_is_not_all_of_them(quick: Seqlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's types are these after `compare` in the same process."""
    limits = [f"limit_{split}_batches" for split in ("train", "val", "test", "predict")]
    for name in limits:
        monkeypatch.setitem(L.Trainer.__init__.__annotations__, name, float | int | None)
    said = quick("fit", "--config", "lm/gru", *(f"--trainer.{name}=1" for name in limits), "--print_config").stdout
    trainer = yaml.safe_load(said)["trainer"]
    assert [repr(trainer[name]) for name in limits] == ["1"] * 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize(("precision", "dtype"), [("bf16-true", torch.bfloat16), ("16-true", torch.float16)])
def test_half_precision_from_a_stopped_fit_to_a_proven_bundle(
    quick: Seqlab, monkeypatch: pytest.MonkeyPatch, precision: str, dtype: torch.dtype
) -> None:
    fit = (*FIT, f"--trainer.precision={precision}")
    with monkeypatch.context() as patch:
        send(patch, signal.SIGTERM, 3)
        quick(*fit, "--run_name=stopped", code=143)
    quick("resume", "stopped")
    plugins = set[type]()
    before_steps(monkeypatch, lambda task, _: plugins.add(type(task.trainer.precision_plugin)))
    quick(*fit, "--run_name=whole")
    assert ({weight.dtype for weight in last_weights("whole").values()}, plugins) == ({dtype}, {HalfInputs})
    assert same_weights("stopped", "whole")
    assert re.search(r"test/loss .* 3\.\d+", quick("test", "whole").stdout)
    assert "greedy" in quick("export", "whole", "--out=bundle").stdout
    quick("verify", "bundle")


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        ("16-mixed", "trainer.precision is 16-mixed, which a CPU does not have; give bf16-mixed or 32-true"),
        ("transformer-engine", "needs the package transformer_engine, which is not installed; `pip install"),
    ],
)
def test_a_precision_that_cannot_be_computed_is_refused(quick: Seqlab, precision: str, said: str) -> None:
    (line,) = quick(*FIT, f"--trainer.precision={precision}", code=2).stderr.splitlines()
    assert said in line


UNNEEDED = {"matplotlib", "onnx", "onnxruntime", "sacrebleu", "scipy.signal", "scipy.stats", "seqeval", "sklearn"}
UNNEEDED |= {"seqlab_export.graphs", "transformers"}
LATER = {"alembic", "fastapi", "flask", "mlflow", "opentelemetry", "pandas", "pydantic", "sqlalchemy"}
"""After the first step."""
CALLBACK = """
import sys
from pathlib import Path
from lightning.pytorch.callbacks import Callback

class FirstStep(Callback):
    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 1:
            Path("at the first step").write_text(" ".join(sys.modules))
            assert (Path(trainer.logger.artifacts) / "config.yaml").exists()
"""
SCRIPT = """
import sys
from seqlab.cli import main

write, first = sys.stderr.write, []
sys.stderr.write = lambda text: first.append((text, "torch" in sys.modules)) or write(text)
assert main(sys.argv[1:]) == 0
assert first[0] == ("seqlab fit: loading PyTorch and Lightning", False), first[0]
print(*sys.modules, file=open("modules", "w"))
"""


@pytest.mark.slow
def test_a_fit_imports_what_it_needs(tmp_path: Path) -> None:
    write_text(tmp_path)
    env = {**os.environ, "SEQLAB_CACHE": str(tmp_path / "cache")}
    (tmp_path / "first_step.py").write_text(CALLBACK)
    watched = "--trainer.callbacks=first_step.FirstStep"
    command = [sys.executable, "-c", SCRIPT, "fit", "--config=lm/gru", *TINY, watched]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    imported = set((tmp_path / "modules").read_text().split())
    assert {"torch", "lightning", "mlflow"} <= imported
    assert imported & UNNEEDED == set()
    assert {*(tmp_path / "at the first step").read_text().split()} & LATER == set()
