"""The scan of Mamba: gradients, and how little it keeps for them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqlab.recurrence.selective_scan import selective_scan, selective_step
from tolerances import assert_close


def _draw(length: int, channels: int = 3, states: int = 4) -> list[Tensor]:
    """h, decay, u, dt, B, C."""
    shapes = [(2, channels, states), (channels, states), *[(2, length, channels)] * 2, *[(2, length, states)] * 2]
    h, decay, u, dt, b, c = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [x.requires_grad_() for x in (h, -decay.exp(), u, dt.exp(), b, c)]


@pytest.mark.parametrize("length", [1, 7, 128, 129, 300])
def test_outputs_states_and_gradients(length: int) -> None:
    leaves = _draw(length)
    h, decay, *inputs = leaves
    y, last = selective_scan(*leaves)
    outputs = []
    for t in range(length):
        y_t, h = selective_step(h, decay, *(x[:, t] for x in inputs))
        outputs.append(y_t)
    expected = torch.stack(outputs, dim=1)
    assert_close(y, expected)
    assert_close(last, h)
    weights = torch.randn_like(y), torch.randn_like(last)
    gradients = torch.autograd.grad((weights[0] * y).sum() + (weights[1] * last).sum(), leaves)
    references = torch.autograd.grad((weights[0] * expected).sum() + (weights[1] * h).sum(), leaves)
    for gradient, reference in zip(gradients, references, strict=True):
        assert_close(gradient, reference)


def test_states_are_not_kept() -> None:
    kept = 0

    def note(x: Tensor) -> Tensor:
        nonlocal kept
        kept += x.numel()
        return x

    length, channels, states = 1024, 16, 16
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        selective_scan(*_draw(length, channels, states))
    assert 0 < kept < length * 2 * channels * states / 3
