"""`seqlab parity` and `seqlab verify --all`, typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Seqlab

pytestmark = pytest.mark.slow


def test_a_config_in_two_precisions_on_every_runtime(seqlab: Seqlab, tmp_path: Path) -> None:
    seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "bf16", "int8", "--out", "found")
    cells = json.loads((tmp_path / "found" / "parity.json").read_text())
    measured = {(cell["precision"], cell["runtime"]) for cell in cells if "missing" not in cell}
    python = "onnxruntime CPU, Python"
    assert {("fp32", "PyTorch eager"), ("fp32", "PyTorch compiled"), ("fp32", python), ("int8", python)} <= measured
    [refused] = [cell for cell in cells if cell["precision"] == "bf16"]
    assert refused["missing"].startswith("unsupported: precision bf16 is refused: onnxruntime's CPU provider")
    assert "| lm/gru | fp32 | PyTorch eager |" in (tmp_path / "found" / "parity.md").read_text()


def test_what_is_no_precision_is_refused(seqlab: Seqlab) -> None:
    done = seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "int2", code=2)
    assert "precision must be one of fp32, fp16, int8, int4, got 'int2'" in done.stderr
