from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from seqlab.cli import main


def test_it_prints_what_a_bug_report_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://anna:secret@mlflow.example")
    assert main(["env"]) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert said["torch"] == torch.__version__ and said["python"] == platform.python_version()
    assert {"seqlab", "lightning", "mlflow", "onnx", "processor", "BLAS", "devices"} <= said.keys()
    assert said["store"] == "https://anna:***@mlflow.example"
