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


def test_operations_of_gpt2_by_hand(program: Any) -> None:
    """124 million weights but for 0.8 of positions: 854 million operations a token."""
    with torch.device("meta"):
        size = program.Size()
        model = program.model_of(program.MIXERS["attention"], size)
    assert program.operations(model, size) == pytest.approx(6 * 123.69e6 + 12 * 12 * 768 * 1024, rel=1e-3)


def test_peaks_of_known_devices_only(program: Any) -> None:
    assert program.peak_of("NVIDIA H100 80GB HBM3") == program.peak_of("NVIDIA H200") == 989e12
    assert program.peak_of("NVIDIA GeForce RTX 4090") is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a CUDA device, so that it would run for minutes")
def test_without_a_device_it_says_so(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    program.main(program.Size(), "cuda")
    assert capsys.readouterr().out == "gpu_training: not run: no CUDA device\n"
