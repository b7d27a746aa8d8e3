"""Fake quantisation: the arithmetic of `quantize` in PyTorch, in floating point. Its error is the cost of quantisation
itself, by which a runtime's error is judged. In int4 this covers only the block-quantised weights: 8-bit inputs, and
the int8 weights of `int8_products`, must fit into the same budget.

D inputs and O outputs of a linear layer, G blocks of weights.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqlab_export.passes.quantize import BLOCK, Quantized

_CELLS = (torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
"""Single steps of a recurrence, whose matrices are linear layers in the graph of a step."""


class FakeQuantized(TorchFunctionMode):
    """While entered, linear layers and recurrences compute with weights and (int8) inputs rounded as by `quantize`."""

    def __init__(self, precision: Quantized) -> None:
        super().__init__()
        self.precision = precision

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            x, weight, *bias = args
            return func(self._activation(x), self._weight(weight), *bias, **(kwargs or {}))
        if func in _CELLS:
            x, carry, *weights = args
            h = carry[0] if func is torch.lstm_cell else carry
            rounded = (self._activation(h), carry[1]) if func is torch.lstm_cell else self._activation(h)
            return func(self._activation(x), rounded, *map(self._of_recurrence, weights), **(kwargs or {}))
        if func is torch.lstm and self.precision == "int8":
            x, carry, *weights = args
            return func(x, carry, *map(self._of_recurrence, weights), **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _activation(self, x: Tensor) -> Tensor:
        return int8_rows(x) if self.precision == "int8" else x

    def _weight(self, weight: Tensor) -> Tensor:
        return int7_rows(weight) if self.precision == "int8" else int4_blocks(weight)

    def _of_recurrence(self, value: Any) -> Any:
        """Rounds the matrices among a recurrence's arguments, single or in a list, with one scale per row."""
        if isinstance(value, Tensor):
            return self._weight(value) if value.dim() == 2 else value
        return [self._of_recurrence(weight) for weight in value] if isinstance(value, list | tuple) else value


def int8_rows(x: Tensor) -> Tensor:
    """x (..., D) rounded to 255 levels between minus and plus the largest magnitude of each row."""
    largest = x.abs().amax(dim=-1, keepdim=True)
    rounded: Tensor = (x / largest.where(largest > 0, 1) * 127).round() / 127 * largest
    return rounded


def int7_rows(weight: Tensor) -> Tensor:
    """weight (O, D) rounded to 129 levels between minus and plus the largest magnitude of each output."""
    scale = weight.abs().amax(dim=1, keepdim=True) / 64
    return (weight / scale.where(scale > 0, 1)).round() * scale


def int4_blocks(weight: Tensor) -> Tensor:
    """weight (O, D) rounded to levels -8 to 7 in blocks of `BLOCK` inputs of an output; the weight of largest magnitude
    is at -8 (`MatMulNBits`, symmetric)."""
    width = weight.shape[1]
    blocks = F.pad(weight, (0, -width % BLOCK)).view(len(weight), -1, BLOCK)  # (O, G, BLOCK)
    largest = blocks.gather(2, blocks.abs().argmax(dim=2, keepdim=True))
    scale = largest / -8
    rounded: Tensor = (blocks / scale.where(scale != 0, 1)).round().clamp(-8, 7) * scale
    return rounded.flatten(1)[:, :width]
