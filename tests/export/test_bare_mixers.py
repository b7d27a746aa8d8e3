"""Mixers that attend to an encoder's memory, or that read both ways, compute in onnxruntime what they do in PyTorch,
for any batch, length and source length: what bundles of encoders and of their decoders hold."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from contracts.cases import D_MODEL, MIXERS, MixerCase
from contracts.subjects import randomized
from seqlab.attention import Attention, Bidirectional
from seqlab.mixer import Mixer, State
from seqlab.nn.operation import lowered
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab_export.graphs import OPSET
from seqlab_export.lowering import STANDARD
from seqlab_export.proof.rounding import DRAWS, TermByTerm
from seqlab_export.runner.cases import limit, relative_errors, rms

COVERED = ("cross-attention", "additive-dot", "multiplicative-local", "multiplicative-fed")
"""Those whose every part is one of another's."""
WITH_MEMORY = [mixer for mixer in MIXERS if mixer.memory and mixer.name not in COVERED]
FILES = ("sequence.onnx", "step.onnx")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Sequence(nn.Module):
    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.mixer(x, state, pad_mask=pad_mask)
        return y, _carried(new_state)


class Step(Sequence):
    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:  # type: ignore[override]
        y_t, new_state = self.mixer.step(x[:, 0], state)
        return y_t.unsqueeze(1), _carried(new_state)


def _carried(state: State) -> State:
    return {name: entry for name, entry in state.items() if not name.startswith("memory_")}


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _session(form: Sequence, inputs: tuple[Any, ...], path: Path) -> ort.InferenceSession:
    """Captured with sizes that all differ, at names for the batch, the length and the source length."""
    *tensors, state = inputs
    sizes = {17: Dim("B"), 13: Dim("T"), 19: Dim("S")}

    def dynamic(tensor: Tensor) -> dict[int, Dim]:
        return {axis: sizes[size] for axis, size in enumerate(tensor.shape) if size in sizes}

    shapes = (*map(dynamic, tensors), {name: dynamic(entry) for name, entry in state.items()})
    with lowered(STANDARD), torch.no_grad():
        program = torch.export.export(form, inputs, dynamic_shapes=shapes, strict=False)
        torch.onnx.export(
            program,
            f=path,
            opset_version=OPSET,
            input_names=[*("x", "pad_mask")[: len(tensors)], *state],
            output_names=["y", *(f"new_{name}" for name in _carried(state))],
            verbose=False,
        )
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def _outputs(form: Sequence, inputs: tuple[Any, ...], mode: AbstractContextManager[Any]) -> tuple[Tensor, ...]:
    with mode:
        y, new_state = form(*inputs)
    return y, *new_state.values()


def _check(session: ort.InferenceSession, form: Sequence, inputs: tuple[Any, ...], real: Tensor) -> None:
    """The outputs of a session on a form's inputs are within the error budget of a float64 copy of it."""
    *tensors, state = inputs
    used = {given.name for given in session.get_inputs()}
    feeds = dict(zip(("x", "pad_mask"), tensors, strict=False)) | state
    found = session.run(None, {name: entry.numpy() for name, entry in feeds.items() if name in used})
    modes: list[AbstractContextManager[Any]] = [nullcontext(), *map(TermByTerm, range(DRAWS))]
    drawn = [_outputs(form, inputs, mode) for mode in modes]
    wide_tensors = [_wide(tensor) for tensor in tensors]
    expected, expected_state = deepcopy(form).double()(
        *wide_tensors, {name: _wide(entry) for name, entry in state.items()}
    )
    names = [output.name for output in session.get_outputs()]
    assert names == ["y", *(f"new_{name}" for name in expected_state)]
    every = zip(names, found, zip(*drawn, strict=True), (expected, *expected_state.values()), strict=True)
    for name, actual, own, reference in every:
        rows = [torch.as_tensor(values)[real if name == "y" else ...].numpy() for values in (actual, *own, reference)]
        errors = [rms(relative_errors({name: values}, {name: rows[-1]}, [name])) for values in rows[:-1]]
        assert errors[0] <= limit(max(errors[1:])), (name, errors)


@pytest.mark.parametrize("case", WITH_MEMORY, ids=lambda case: case.name)
def test_onnxruntime_computes_what_a_mixer_with_a_memory_does(case: MixerCase, tmp_path: Path) -> None:
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)
    mixer = randomized(case.factory(D_MODEL, 0)).float()
    x, pad_mask = torch.zeros(17, 13, D_MODEL), torch.ones(17, 13, dtype=torch.bool)
    with torch.no_grad():
        state = mixer.init_state(17, torch.zeros(17, 19, D_MODEL))
    sequence = _session(Sequence(mixer), (x, pad_mask, state), tmp_path / FILES[0])
    step = _session(Step(mixer), (x[:, :1], state), tmp_path / FILES[1])

    loops = [Counter(node.op_type for node in onnx.load(tmp_path / name).graph.node) for name in FILES]
    looped = hasattr(mixer, "cell") or getattr(mixer, "in_proj", None) is not None
    assert [(nodes["Scan"], nodes["Loop"]) for nodes in loops] == [(int(looped), 0), (0, 0)]

    for batch_size, length, source in ((1, 1, 5), (3, 29, 1), (4, 7, 40)):
        memory_mask = torch.ones(batch_size, source, dtype=torch.bool)
        memory_mask[0, source // 2 :] = False  # nothing at all of a source of 1
        pad_mask = torch.ones(batch_size, length, dtype=torch.bool)
        pad_mask[-1, : length // 2] = False
        x = torch.randn(batch_size, length, D_MODEL)
        with torch.no_grad():
            memory = torch.randn(batch_size, source, D_MODEL)
            _, state = mixer(x, mixer.init_state(batch_size, memory, memory_mask))
            _check(sequence, Sequence(mixer), (x, pad_mask, state), pad_mask)
            _check(step, Step(mixer), (x[:, :1], state), torch.ones(batch_size, 1, dtype=torch.bool))


class BothWays(Sequence):
    def forward(self, x: Tensor, pad_mask: Tensor, state: State) -> tuple[Tensor, State]:
        return self.mixer(x, pad_mask=pad_mask)[0], {}


@pytest.mark.parametrize(
    "build",
    [
        partial(RNN, num_layers=2, bidirectional=True, nonlinearity="relu"),
        partial(LSTM, num_layers=2, bidirectional=True),
        partial(GRU, num_layers=2, bidirectional=True),
        partial(Attention, num_heads=2, pattern=Bidirectional),
    ],
    ids=["RNN", "LSTM", "GRU", "Attention"],
)
def test_onnxruntime_computes_what_a_mixer_that_reads_both_ways_does(
    build: Callable[[int], Mixer], tmp_path: Path
) -> None:
    form = BothWays(randomized(build(D_MODEL)).float())
    example = (torch.zeros(17, 13, D_MODEL), torch.ones(17, 13, dtype=torch.bool), {})
    x, pad_mask = torch.randn(3, 29, D_MODEL), torch.ones(3, 29, dtype=torch.bool)
    pad_mask[0, :7], pad_mask[1, 9:] = False, False
    with torch.no_grad():
        _check(_session(form, example, tmp_path / "model.onnx"), form, (x, pad_mask, {}), pad_mask)
