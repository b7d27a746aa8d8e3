"""`seqlab parity` and `seqlab verify --all`, typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Seqlab

pytestmark = pytest.mark.slow


def test_a_config_in_three_precisions_on_every_runtime(seqlab: Seqlab, tmp_path: Path) -> None:
    seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "bf16", "int8", "--out", "found")
    cells = json.loads((tmp_path / "found" / "parity.json").read_text())
    measured = {(cell["precision"], cell["runtime"]) for cell in cells if "missing" not in cell}
    python = "onnxruntime CPU, Python"
    of_torch = {(precision, f"PyTorch {how}") for precision in ("fp32", "bf16") for how in ("eager", "compiled")}
    assert of_torch | {("fp32", python), ("bf16", python), ("int8", python)} <= measured
    assert all(cell["ok"] for cell in cells if "missing" not in cell)
    assert "| lm/gru | fp32 | PyTorch eager |" in (tmp_path / "found" / "parity.md").read_text()


def test_what_is_no_precision_is_refused(seqlab: Seqlab) -> None:
    done = seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "int2", code=2)
    assert "precision must be one of fp32, fp16, bf16, int8, int4, got 'int2'" in done.stderr
