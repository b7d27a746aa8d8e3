"""The blocked scan against the loop that it stands for: values, gradients, extreme factors, few operations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqlab.recurrence.linear_scan import complex_scan, linear_scan
from tolerances import assert_close

lengths = pytest.mark.parametrize("length", [1, 2, 7, 63, 64, 129])


def _loop(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    return torch.stack(states, dim=1)


def _draw(length: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(*shape, 5, dtype=dtype, requires_grad=True) for shape in ((2, length), (2, length), (2,))]


@lengths
def test_values_and_gradients(length: int) -> None:
    leaves = _draw(length)
    h, expected = linear_scan(*leaves), _loop(*leaves)
    assert_close(h, expected)
    weight = torch.randn_like(h)
    gradients, references = (torch.autograd.grad((weight * y).sum(), leaves) for y in (h, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        assert_close(gradient, reference)


@lengths
def test_complex_values_and_gradients(length: int) -> None:
    a, b, h0 = _draw(length, torch.complex128)
    pairs = [(z.real, z.imag) for z in (a, b, h0)]
    h, expected = torch.complex(*complex_scan(*pairs)), _loop(a, b, h0)
    assert_close(torch.view_as_real(h), torch.view_as_real(expected))
    weight = torch.randn_like(h)
    gradients, references = (torch.autograd.grad((weight * y).real.sum(), (a, b, h0)) for y in (h, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        assert_close(torch.view_as_real(gradient), torch.view_as_real(reference))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [0.0, 1e-30, 0.5, 1 - 1e-6, 1.0, -1.0, -0.9])
def test_any_factor_is_exact(factor: float, dtype: torch.dtype) -> None:
    """Includes factors whose products underflow, and one that forgets nothing."""
    b = torch.randn(2, 1000, 3, dtype=torch.float64)
    a = torch.full_like(b, factor).to(dtype).requires_grad_()
    h = linear_scan(a, b.to(dtype), torch.ones(2, 3, dtype=dtype))
    assert_close(h, _loop(a.double(), b, torch.ones(2, 3, dtype=torch.float64)))
    assert torch.autograd.grad(h.sum(), a)[0].isfinite().all()


def test_a_factor_that_is_the_same_at_every_step() -> None:
    _, b, h0 = _draw(50)
    a = torch.rand(5, dtype=torch.float64, requires_grad=True)
    h, expected = linear_scan(a.expand_as(b), b, h0), _loop(a.expand_as(b), b, h0)
    assert_close(h, expected)
    assert_close(torch.autograd.grad(h.sum(), a)[0], torch.autograd.grad(expected.sum(), a)[0])


def test_half_precision_is_computed_in_float32() -> None:
    a, b, h0 = (x.detach().bfloat16() for x in _draw(20))
    h = linear_scan(a, b, h0)
    assert h.dtype == torch.float32
    assert_close(h, _loop(a.float(), b.float(), h0.float()))


@pytest.mark.parametrize("length", [1024, 4096])
def test_operations_grow_as_the_root_of_the_length(length: int) -> None:
    class Count(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.found += func is torch.ops.aten.addcmul.default
            return func(*args, **(kwargs or {}))

    with Count() as count, torch.no_grad():
        linear_scan(*_draw(length))
    assert 0 < count.found <= 3 * math.sqrt(length)
