"""Angles of positions far out, which no proof reaches: the exporter rounds Python numbers to float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor, nn
from torch.export import Dim

from seqlab.positions.constant import Angles, geometric
from seqlab_export.graphs import _quiet


class Rotation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.angles = Angles(geometric(10000.0, 8))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = self.angles(positions, torch.float32)
        return angle.cos(), angle.sin()


def test_angles_stay_exact_far_out(tmp_path: Path) -> None:
    program = torch.export.export(Rotation(), (torch.zeros(1, 7, dtype=torch.int64),), dynamic_shapes=({1: Dim("T")},))
    with _quiet():
        torch.onnx.export(program, opset_version=23, verbose=False).save(tmp_path / "angles.onnx")
    session = ort.InferenceSession(tmp_path / "angles.onnx", providers=["CPUExecutionProvider"])
    positions = np.arange(0, 100_000, 37)[None]
    exact = positions[..., None] * 10000.0 ** (-2.0 * np.arange(4) / 8)
    outputs = session.run(None, {"positions": positions})
    for found, expected in zip(outputs, (np.cos(exact), np.sin(exact)), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
