"""`seqlab parity` and `seqlab verify --all`, typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.conftest import TINY, Seqlab, write_text

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


def test_a_run_with_what_its_test_says_of_its_bundle(seqlab: Seqlab, tmp_path: Path) -> None:
    write_text(tmp_path)
    seqlab("fit", "--config", "lm/gru", *TINY, "--run_name=run")
    told = re.search(r"test/loss\W+([\d.]+)", seqlab("test", "run").stdout)
    seqlab("parity", "--models", "run", "--precisions", "fp32", "--out", "found")
    cells = json.loads((tmp_path / "found" / "parity.json").read_text())
    scores = {cell["runtime"]: cell["scores"]["loss"] for cell in cells if cell.get("scores")}
    assert told and set(scores) == {"PyTorch eager", "onnxruntime CPU, Python"}
    assert list(scores.values()) == pytest.approx([float(told[1])] * 2, rel=1e-4)


def test_what_is_no_precision_is_refused(seqlab: Seqlab) -> None:
    done = seqlab("parity", "--models", "lm/gru", "--precisions", "fp32", "int2", code=2)
    assert "precision must be one of fp32, fp16, bf16, int8, int4, got 'int2'" in done.stderr
