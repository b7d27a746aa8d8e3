"""Functions that lose no digits where the obvious formula does, here and in ONNX."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.nn.onnx_mode import emitting


def expm1(x: Tensor) -> Tensor:
    """e^x - 1 for x <= 0. ONNX has no such operator, and e^x - 1 as it stands cancels near 0; tanh does not."""
    t = torch.tanh(x / 2)
    return 2 * t / (1 - t)


def logsigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + e^-x)). PyTorch exports its own as the logarithm of a sigmoid, which is rounded to 1 for large x."""
    # From 40 on, softplus is its argument in float64 too.
    return -F.softplus(-x, threshold=40)


def wide_in_onnx(x: Tensor) -> Tensor:
    """A parameter in float64 where a model is captured for ONNX, in which a recurrence takes powers of what is made of
    it: onnxruntime's float32 exponentials and sines are less precise than PyTorch's."""
    return x.double() if emitting() else x
