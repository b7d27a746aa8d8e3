"""The program that trains GPT-2 124M where there is a device, tiny and on a CPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

PATH = Path(__file__).parents[2] / "benchmarks" / "gpu_training.py"


@pytest.fixture(scope="module")
def program() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_training", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_tiny_one_on_a_cpu(program: Any, checkpoint: bool) -> None:
    found = program.measure(program.MIXERS["attention"], program.TINY, "cpu", checkpoint=checkpoint)
    assert found.tokens_per_s > 0 and found.mfu is None and found.gigabytes is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a CUDA device, so that it would run for minutes")
def test_without_a_device_it_says_so(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    program.main(program.Size(), "cuda")
    assert capsys.readouterr().out == "gpu_training: not run: no CUDA device\n"
