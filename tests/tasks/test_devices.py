"""Every tensor is made on the device of its inputs, and a training step does not wait for numbers of the device: on
PyTorch's `meta` device, which has no numbers and computes with no tensor of another device."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scale.kinds import KINDS
from seqlab.callbacks.progress import FitProgress
from seqlab.callbacks.speed import Speed
from seqlab.mixer import State
from seqlab.models import DecoderLM
from seqlab.optim import SGD, AdamW, Lion, Muon
from seqlab.parallel import DataParallel
from seqlab.parallel.gradients import clip_by_norm, clip_by_value
from seqlab.positions import NoPositions
from seqlab.recurrence import CausalConv
from seqlab.tasks import LanguageModeling
from seqlab_export.reports.conformance import all_mixers, model_named, model_of
from tasks.evaluated import trained, with_batch
from trainers import loader, quiet_trainer

PACKED = ("GRU", "LSTM", "RNN", "AdditiveAttention", "CrossAttention", "MultiplicativeAttention")
"""Models with recurrences of cuDNN, which takes lengths from the host: they wait where there is padding."""


def read(model: Any, *, padded: bool) -> None:
    """Reads two rows forward and backward, and a token after them, on `meta`."""
    model = model.train().to("meta")
    tokens = torch.zeros(2, 9, dtype=torch.int64, device="meta")
    pad_mask = torch.ones(2, 9, dtype=torch.bool, device="meta") if padded else None
    if not model.kind.decodes:
        model(tokens, pad_mask=pad_mask).sum().backward()
        return
    start = model.begin(tokens, pad_mask) if model.kind.reads == "sources" else None
    logits, state = model(tokens, start, pad_mask=pad_mask)
    logits.sum().backward()
    logits_t, _ = model.step(tokens[:, 0], state)
    assert logits_t.is_meta and all(entry.is_meta for entry in state.values())


@pytest.mark.parametrize("name", all_mixers())
def test_a_mixer_makes_its_tensors_on_the_device_of_its_inputs(name: str) -> None:
    read(model_named(name), padded=name not in PACKED)


def test_a_tensor_of_another_device_is_found() -> None:
    class Elsewhere(CausalConv):
        def forward(self, x: Tensor, state: State | None = None, **given: Any) -> tuple[Tensor, State]:
            y, state = super().forward(x, state, **given)
            return y + torch.ones(x.shape), state

    with pytest.raises(RuntimeError, match="is not on the expected device meta"):
        read(model_of(Elsewhere, NoPositions), padded=True)


def test_lengths_on_the_host_are_the_wait_of_recurrences() -> None:
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        read(model_named("GRU"), padded=True)


@pytest.mark.parametrize("name", KINDS)
def test_a_training_step_does_not_wait_for_the_device(name: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, batch = with_batch(name, files)
    on_meta = type(batch)(*(part if part is None else part.to("meta") for part in batch))
    task.to("meta")
    task.on_fit_start()
    added: list[Tensor] = []
    monkeypatch.setattr("seqlab.tasks.task.DataParallel", lambda: DataParallel(0, 2))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda sums, group: added.append(sums))
    trained(task, on_meta).backward()
    assert len(added) == 1 and added[0].is_meta, "ranks add up what is on the device"
    assert all(weight.grad is None or weight.grad.is_meta for weight in task.parameters())


@pytest.mark.parametrize("optimizer", [SGD, AdamW, Lion, Muon])
def test_an_optimiser_and_clipping_do_not_wait_for_the_device(optimizer: Any) -> None:
    task = LanguageModeling(4, 9, model=partial(DecoderLM, d_model=8, num_layers=1), optimizer=optimizer)
    task.to(device="meta", dtype=torch.bfloat16)
    tokens = torch.zeros(2, 9, dtype=torch.int64, device="meta")
    steps = task.new_optimizer()
    for _ in range(2):
        task.model(tokens)[0].sum().backward()
        assert clip_by_norm(task.parameters(), 1.0).is_meta
        clip_by_value(task.parameters(), 1.0)
        steps.step()


class Reads(TorchDispatchMode):
    """Counts the numbers read on the host."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_reads_no_number_in_a_step_that_it_does_not_log(name: str, files: Path, tmp_path: Path) -> None:
    def reads(steps: int) -> int:
        task, batch = with_batch(name, files)
        task.optimizer = SGD  # the others count their steps, on the host
        options: dict[str, Any] = {"max_steps": steps, "log_every_n_steps": 99, "gradient_clip_val": 1.0}
        options |= {"limit_val_batches": 0, "enable_progress_bar": True, "callbacks": [FitProgress(Speed())]}
        trainer = quiet_trainer(tmp_path, **options)
        with Reads() as mode:
            trainer.fit(task, loader([batch] * steps))
        return mode.found

    assert reads(3) == reads(9)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler:UserWarning")
def test_a_scaled_step_that_overflows_changes_nothing_but_the_scale(files: Path, tmp_path: Path) -> None:
    """16-mixed, with the scaler of a GPU on the CPU; from a scale of 2^120 gradients of float32 are infinite."""
    task, batch = with_batch("regression", files)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=100)
    options: dict[str, Any] = {"limit_val_batches": 0, "gradient_clip_val": 1.0}
    options["plugins"] = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    first = [weight.detach().clone() for weight in task.parameters()]
    quiet_trainer(tmp_path, max_steps=1, **options).fit(task, loader([batch]))
    assert scaler.get_scale() == 2.0**119
    assert all(torch.equal(weight, old) for weight, old in zip(task.parameters(), first, strict=True))
    quiet_trainer(tmp_path, max_steps=200, **options).fit(task, loader([batch] * 200))
    assert scaler.get_scale() < 2.0**119
    assert all(not torch.equal(weight, old) for weight, old in zip(task.parameters(), first, strict=True))


@pytest.mark.parametrize(("precision", "tf32"), [("highest", False), ("high", True)])
def test_recurrences_multiply_as_the_layers_beside_them_do(
    precision: str, tf32: bool, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", not tf32)
    task, batch = with_batch("regression", files)
    quiet_trainer(tmp_path, max_steps=1, limit_val_batches=0).fit(task, loader([batch]))
    assert torch.backends.cudnn.allow_tf32 == tf32
