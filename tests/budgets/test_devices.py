"""Peaks of devices, by the names that drivers give them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqlab.budgets.devices import peak_of
from seqlab.callbacks.run_tracker import RunTracker
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16-mixed", 989e12),
        ("NVIDIA H200", "bf16-true", 989e12),
        ("NVIDIA H200", "32-true", 67e12),
        ("NVIDIA A100-SXM4-80GB", "16-mixed", 312e12),
        ("NVIDIA H200", "64-true", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16-mixed", None),
        ("NVIDIA GeForce GTX 1080", "16-mixed", None),
    ],
)
def test_peaks_are_dense_and_of_the_whole_device(name: str, precision: str, peak: float | None) -> None:
    assert peak_of(name, precision) == peak


def test_tf32_where_pytorch_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert peak_of("NVIDIA H100 80GB HBM3", "32-true") == 494e12


def test_a_fit_knows_the_peak_of_all_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    model = DecoderLM(7, 16, d_model=8, num_layers=1, mixer=GRU, positions=NoPositions)
    task: Any = SimpleNamespace(model=model, parameters=model.parameters)
    trainer: Any = SimpleNamespace(
        datamodule=SimpleNamespace(seq_len=16),
        strategy=SimpleNamespace(root_device=torch.device("cuda", 0)),
        precision="bf16-mixed",
        world_size=4,
        is_global_zero=False,
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    tracker = RunTracker()
    tracker.setup(trainer, task, "fit")
    # The GRU's two matrices, the feed-forward's and the output layer's, forwards and backwards.
    flops = 6 * (2 * 3 * 8 * 8 + 2 * 8 * 32 + 7 * 8)
    assert tracker.speed.peak == 4 * 989e12 / flops

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "another")
    tracker.setup(trainer, task, "fit")
    assert tracker.speed.peak is None
