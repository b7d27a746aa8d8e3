"""Mixers that read both ways compute in onnxruntime what they do in PyTorch, for any batch, length and padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from contracts.subjects import randomized
from seqlab.attention import Attention, Bidirectional
from seqlab.mixer import Mixer
from seqlab.nn.operation import lowered
from seqlab.recurrence import GRU, LSTM, RNN
from seqlab_export.graphs import OPSET
from seqlab_export.lowering import STANDARD
from tolerances import TOLERANCE

D_MODEL = 6


class _Outputs(nn.Module):
    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, pad_mask: Tensor) -> Tensor:
        y: Tensor = self.mixer(x, pad_mask=pad_mask)[0]
        return y


# torch's exporter uses what its own version deprecates.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "build",
    [
        partial(RNN, num_layers=2, bidirectional=True),
        partial(RNN, num_layers=2, bidirectional=True, nonlinearity="relu"),
        partial(LSTM, num_layers=2, bidirectional=True),
        partial(GRU, num_layers=2, bidirectional=True),
        partial(Attention, num_heads=2, pattern=Bidirectional),
    ],
    ids=["RNN", "RNN with ReLU", "LSTM", "GRU", "Attention"],
)
def test_onnxruntime_computes_what_the_mixer_does(build: Callable[[int], Mixer]) -> None:
    mixer = randomized(build(D_MODEL)).float()
    dims = {0: Dim("B"), 1: Dim("T")}
    example = (torch.zeros(17, 13, D_MODEL), torch.ones(17, 13, dtype=torch.bool))
    with lowered(STANDARD), torch.no_grad():
        program = torch.export.export(_Outputs(mixer), example, dynamic_shapes=(dims, dims), strict=False)
    model = torch.onnx.export(program, opset_version=OPSET, input_names=["x", "pad_mask"], verbose=False)
    session = ort.InferenceSession(model.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x, pad_mask = torch.randn(3, 29, D_MODEL), torch.ones(3, 29, dtype=torch.bool)
    pad_mask[0, :7], pad_mask[1, 9:] = False, False
    (found,) = session.run(None, {"x": x.numpy(), "pad_mask": pad_mask.numpy()})
    expected = mixer(x, pad_mask=pad_mask)[0].detach().numpy()
    real = pad_mask.numpy()
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=TOLERANCE[torch.float32])
