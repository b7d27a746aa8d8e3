"""Peaks of devices, by the names that drivers give them, and the time on a GPU, which is that of its kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqlab.budgets.devices import peak_of
from seqlab.budgets.parts import REST, Part
from seqlab.budgets.shares import Time, in_words, shares
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
    task: Any = SimpleNamespace(model=model, parameters=model.parameters, modules=model.modules)
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


def event(name: str, parent: Any = None, *, kernel: float = 0, number: int = -1, thread: int = 1, of: int = 0) -> Any:
    """Profiler event with a kernel of so many milliseconds; a step takes 10 ms."""
    return SimpleNamespace(
        name=name,
        cpu_parent=parent,
        kernels=[SimpleNamespace(duration=1e3 * kernel)] if kernel else [],
        sequence_nr=number,
        thread=thread,
        fwd_thread=of,
        device_type=SimpleNamespace(name="CPU"),
        is_async=False,
        time_range=SimpleNamespace(start=0),
        cpu_time_total=1e4,
    )


def test_kernels_of_both_passes_and_the_time_in_which_there_is_none() -> None:
    parts = [Part("mixer", "GRU", "", 0), Part("mixer", "GRU", "", 1), Part("loss"), REST]
    first, second, loss, _ = parts
    step = event("ProfilerStep#6")
    training = event("loss", step)
    ranges = [event(str(part), training) for part in (first, second)]
    forward = [event("mm", within, kernel=1, number=k) for k, within in enumerate(ranges)]
    # Kernels of the backward pass are launched by a thread of its own.
    backward = [event("MmBackward0", kernel=3, number=k, thread=2, of=1) for k in range(2)]
    found = shares([step, training, *ranges, *forward, *backward], {str(part): part for part in parts})
    mixers = {first: Time(1, 3), second: Time(1, 3)}
    assert found == mixers | {loss: Time(0, 0), REST: Time(0, 0), Part("waiting"): Time(2, 0)}
    assert in_words(found)[:2] == [
        "the mixer GRU of blocks 0-1 takes 80% of a step: 8.0 ms",
        "the waiting takes 20% of a step: 2.0 ms",
    ]


def test_blocks_of_several_stacks_in_words() -> None:
    parts = [Part("norm", "LayerNorm", "encoder", block) for block in (0, 1, 2, 4)] + [Part("norm", "LayerNorm", "", 3)]
    (said,) = in_words(dict.fromkeys(parts, Time(1, 0)))
    assert said.startswith("the norm LayerNorm of block 3 and encoder blocks 0-2, 4 takes 100% of a step")
