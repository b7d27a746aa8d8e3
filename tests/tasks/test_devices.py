"""Every tensor is made on the device of its inputs, and a training step does not wait for numbers of the device: on
PyTorch's `meta` device, which has no numbers and computes with no tensor of another device."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scale.kinds import KINDS, of_kind
from seqlab.mixer import State
from seqlab.positions import NoPositions, RoPE
from seqlab.recurrence import RWKV7, CausalConv
from seqlab_export.reports.conformance import all_mixers, model_of
from tasks.evaluated import trained

MIXERS = {**all_mixers(), "RWKV7": partial(RWKV7, head_dim=8)}
PACKED = ("GRU", "LSTM", "RNN", "AdditiveAttention", "CrossAttention", "MultiplicativeAttention")
"""Models with recurrences of cuDNN, which takes lengths from the host: they wait where there is padding."""


def decoder(mixer: Any) -> Any:
    try:
        model = model_of(mixer, RoPE)
    except ValueError:
        model = model_of(mixer, NoPositions)
    return model.train().to("meta")


def read(model: Any, *, padded: bool) -> None:
    """Reads two rows forward and backward, and a token after them."""
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


@pytest.mark.parametrize("name", [name for name in MIXERS if name != "S4D"])  # autocast has no meta device
def test_a_mixer_makes_its_tensors_on_the_device_of_its_inputs(name: str) -> None:
    read(decoder(MIXERS[name]), padded=name not in PACKED)


def test_a_tensor_of_another_device_is_found() -> None:
    class Elsewhere(CausalConv):
        def forward(self, x: Tensor, state: State | None = None, **given: Any) -> tuple[Tensor, State]:
            y, state = super().forward(x, state, **given)
            return y + torch.ones(x.shape), state

    with pytest.raises(RuntimeError, match="is not on the expected device meta"):
        read(decoder(Elsewhere), padded=True)


def test_lengths_on_the_host_are_the_wait_of_recurrences() -> None:
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        read(decoder(MIXERS["GRU"]), padded=True)


@pytest.mark.parametrize("name", KINDS)
def test_a_training_step_does_not_wait_for_the_device(name: str, files: Path) -> None:
    data, task = of_kind(name, files)
    data.prepare_data()
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    on_meta = type(batch)(*(part if part is None else part.to("meta") for part in batch))
    task.to("meta")
    trained(task, on_meta).backward()
    assert all(weight.grad is None or weight.grad.is_meta for weight in task.parameters())
