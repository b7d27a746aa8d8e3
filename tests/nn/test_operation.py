"""Functions that lose no digits, operations, and who may know what they become elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import seqlab
from seqlab.nn.numerics import expm1, logsigmoid
from seqlab.nn.operation import lowered, operation, plain
from seqlab_export.capture.to_onnx import OPSET
from seqlab_export.lowering import STANDARD

BLOCKS = ("attention", "decoding", "models", "nn", "positions", "recurrence", "tasks", "mixer.py", "batch.py")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_expm1_keeps_its_digits_near_0(dtype: torch.dtype) -> None:
    x = -torch.logspace(-30, 2, 200, dtype=dtype)
    assert ((expm1(x) / torch.expm1(x) - 1).abs() < 8 * torch.finfo(dtype).eps).all()
    assert expm1(torch.tensor([0.0, -1e9], dtype=dtype)).tolist() == [0, -1]


# torch's exporter uses what its own version deprecates.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_logsigmoid_keeps_its_digits_here_and_in_onnx() -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return logsigmoid(x)

    x = torch.cat((torch.linspace(-100, 30, 500), -torch.logspace(-6, 1, 50)))
    with lowered(STANDARD):
        program = torch.export.export(Gate(), (x,))
    model = torch.onnx.export(program, opset_version=OPSET, verbose=False)
    session = ort.InferenceSession(model.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected = F.logsigmoid(x.double())
    assert ((torch.from_numpy(found) / expected - 1).abs() < 4 * torch.finfo(torch.float32).eps).all()
    assert ((logsigmoid(x.double()) / expected - 1).abs() < 4 * torch.finfo(torch.float64).eps).all()


class Doubled:
    @operation
    def of(self, x: int) -> int:
        """Twice x."""
        return 2 * x


def test_an_operation_is_computed_by_its_lowering_while_that_is_open() -> None:
    doubled = Doubled()
    with lowered({Doubled.of: lambda self, x: plain(Doubled.of)(self, x) + 1}):
        assert doubled.of(3) == 7
        with lowered({}):
            assert doubled.of(3) == 6
        assert doubled.of(3) == 7
    assert doubled.of(3) == 6
    with pytest.raises(KeyError), lowered({Doubled.of: {}.__getitem__}):
        raise KeyError
    assert doubled.of(3) == 6
    assert Doubled.of.__doc__ == "Twice x."


def test_no_block_knows_of_another_runtime() -> None:
    platform = Path(seqlab.__file__).parent
    files = [file for room in BLOCKS for file in (platform / room).rglob("*.py")]
    files += [platform / room for room in BLOCKS if room.endswith(".py")]
    assert len(files) > 100
    assert [str(file) for file in files if re.search(r"onnx|seqlab_export", file.read_text(), re.IGNORECASE)] == []
