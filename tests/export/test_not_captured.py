"""Refusals of models that cannot be a graph: a sentence names the obstacle and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqlab.mixer import Mixer, State, StateEntry, StateSpec
from seqlab.models import DecoderLM
from seqlab.positions import NoPositions
from seqlab_export.capture.graph_forms import SequenceForm
from seqlab_export.capture.to_onnx import to_onnx
from seqlab_export.lowering import STANDARD

Mix = Callable[[Tensor, Tensor], Tensor]


class Own(Mixer):
    """A mixer whose forward pass the test defines."""

    def __init__(self, d_model: int, layer: int = 0, *, mix: Mix) -> None:
        super().__init__(d_model, layer)
        self.proj, self.mix = nn.Linear(d_model, d_model), mix

    def forward(self, x: Tensor, state: State | None = None, **given: Any) -> tuple[Tensor, State]:
        state = self.init_state(x.shape[0]) if state is None else state
        y = self.mix(self.proj(x), state["h"])
        return y, {"h": y[:, -1]}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.forward(x_t[:, None], state)
        return y[:, 0], new_state

    def state_spec(self) -> StateSpec:
        return (StateEntry("h", (self.d_model,)),)


def looped(x: Tensor, h: Tensor) -> Tensor:
    return torch.stack([x[:, t] + h for t in range(x.shape[1])], dim=1)


def converted(x: Tensor, h: Tensor) -> Tensor:
    return x / int(x.shape[1]) if x.shape[1] != 16 else x


def sliced(x: Tensor, h: Tensor) -> Tensor:
    return x + torch.cat((h[:, None], x[:, :-1]), dim=1)


def cummax(x: Tensor, h: Tensor) -> Tensor:
    return torch.cummax(x, dim=1).values + h[:, None]


def median(x: Tensor, h: Tensor) -> Tensor:
    return x - x.nanmedian(dim=-1, keepdim=True).values


def branched(x: Tensor, h: Tensor) -> Tensor:
    return 2 * x if x.sum() > 0 else x


def instead(x: Tensor, h: Tensor) -> Tensor:
    """The code that the refusal of `sliced` suggests."""
    return x + torch.cat((h[:, None], x), dim=1)[:, : x.shape[1]]


REFUSED = [
    (looped, ["one size of T, the length", "scan_over_time"]),
    (converted, ["T, the length"]),
    (sliced, ["every size of T", "[:, : x.shape[1]]"]),
    (cummax, ["torch.cummax", "ONNX", "scan_over_time"]),
    (median, ["torch.nanmedian", "ONNX"]),
    (branched, ["by a tensor's value", "test_not_captured.py", "if x.sum() > 0", "torch.where"]),
]


def form(mix: Mix) -> SequenceForm:
    mixer = partial(Own, mix=mix)
    return SequenceForm(DecoderLM(8, 32, d_model=8, num_layers=1, mixer=mixer, positions=NoPositions).eval())


@pytest.mark.parametrize(("mix", "said"), REFUSED, ids=[mix.__name__ for mix, _ in REFUSED])
def test_one_sentence(mix: Mix, said: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    refused = form(mix)
    with pytest.raises(ValueError) as refusal:
        to_onnx(refused, refused.info(), STANDARD)
    sentence = str(refusal.value)
    assert "\n" not in sentence and len(sentence) < 400
    assert all(part in sentence for part in said), sentence
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_what_it_says_to_write_is_captured() -> None:
    captured = form(instead)
    assert to_onnx(captured, captured.info(), STANDARD)
