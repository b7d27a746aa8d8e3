"""Functions that lose no digits."""

from __future__ import annotations

import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.nn.numerics import expm1, logsigmoid
from seqlab.nn.operation import lowered
from seqlab_export.graphs import OPSET
from seqlab_export.lowering import STANDARD


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
