"""A fit says at once what it does, and imports nothing that it does not need, and MLflow after its first step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import TINY, write_text

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
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SEQLAB_CACHE": str(tmp_path / "cache")}
    (tmp_path / "first_step.py").write_text(CALLBACK)
    watched = "--trainer.callbacks=first_step.FirstStep"
    command = [sys.executable, "-c", SCRIPT, "fit", "--config=lm/gru", *TINY, watched]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    imported = set((tmp_path / "modules").read_text().split())
    assert {"torch", "lightning", "mlflow"} <= imported
    assert imported & UNNEEDED == set()
    assert {*(tmp_path / "at the first step").read_text().split()} & LATER == set()
