"""Every tensor is made on the device of its inputs, and a training step does not wait for numbers of the device: on
PyTorch's `meta` device, which has no numbers and computes with no tensor of another device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scale.kinds import KINDS
from seqlab.mixer import State
from seqlab.positions import NoPositions
from seqlab.recurrence import CausalConv
from seqlab_export.reports.conformance import all_mixers, model_named, model_of
from tasks.evaluated import trained, with_batch

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


@pytest.mark.parametrize("name", [name for name in all_mixers() if name != "S4D"])  # autocast has no meta device
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
def test_a_training_step_does_not_wait_for_the_device(name: str, files: Path) -> None:
    task, batch = with_batch(name, files)
    on_meta = type(batch)(*(part if part is None else part.to("meta") for part in batch))
    task.to("meta")
    trained(task, on_meta).backward()
    assert all(weight.grad is None or weight.grad.is_meta for weight in task.parameters())
