"""The blocked scans against the loops that they stand for: values, gradients, extreme factors, few operations. Under
bfloat16 autocast a mixer's state stays in float32, and outputs and gradients are what they are without it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from contracts.cases import D_MODEL, MIXERS, MixerCase
from contracts.subjects import randomized
from seqlab.recurrence.linear_scan import _in_chunks, complex_scan, linear_scan
from seqlab.recurrence.selective_scan import selective_scan, selective_step
from tolerances import BFLOAT16_FIRST_READINGS, BFLOAT16_FORGETFUL, BFLOAT16_MAMBA2, TOLERANCE, assert_close


def _loop(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    states = []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    return torch.stack(states, dim=1)


def _draw(length: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(*shape, 5, dtype=dtype, requires_grad=True) for shape in ((2, length), (2, length), (2,))]


def _complex_scan(*inputs: Tensor) -> Tensor:
    return torch.complex(*complex_scan(*((z.real, z.imag) for z in inputs)))


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


def _same_gradients(found: list[Tensor], expected: list[Tensor], leaves: list[Tensor]) -> None:
    """The same values, and the same gradients of a sum of them."""
    weights = [torch.randn_like(y) for y in found]
    totals = [
        torch.stack([(w * y).real.sum() for w, y in zip(weights, ys, strict=True)]).sum() for ys in (found, expected)
    ]
    gradients, references = (torch.autograd.grad(total, leaves) for total in totals)
    for ours, theirs in [*zip(found, expected, strict=True), *zip(gradients, references, strict=True)]:
        assert_close(_real(ours), _real(theirs))


@pytest.mark.parametrize(("scan", "dtype"), [(linear_scan, torch.float64), (_complex_scan, torch.complex128)])
@pytest.mark.parametrize("length", [1, 2, 7, 63, 64, 129])
def test_linear_scan(length: int, scan: Any, dtype: torch.dtype) -> None:
    leaves = _draw(length, dtype)
    _same_gradients([scan(*leaves)], [_loop(*leaves)], leaves)


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
    _same_gradients([linear_scan(a.expand_as(b), b, h0)], [_loop(a.expand_as(b), b, h0)], [a, b, h0])


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
        _in_chunks(*_draw(length))
    assert 0 < count.found <= 3 * math.sqrt(length)


def _draw_selective(length: int, channels: int = 3, states: int = 4) -> list[Tensor]:
    """h, decay, u, dt, B, C."""
    shapes = [(2, channels, states), (channels, states), *[(2, length, channels)] * 2, *[(2, length, states)] * 2]
    h, decay, u, dt, b, c = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [x.requires_grad_() for x in (h, -decay.exp(), u, dt.exp(), b, c)]


@pytest.mark.parametrize("length", [1, 7, 128, 129, 300])
def test_mambas_scan(length: int) -> None:
    leaves = _draw_selective(length)
    h, decay, *inputs = leaves
    outputs = []
    for t in range(length):
        y_t, h = selective_step(h, decay, *(x[:, t] for x in inputs))
        outputs.append(y_t)
    _same_gradients([*selective_scan(*leaves)], [torch.stack(outputs, dim=1), h], leaves)


def test_mambas_states_are_not_kept_for_the_gradients() -> None:
    kept: list[int] = []

    def note(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    length, channels, states = 1024, 16, 16
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        selective_scan(*_draw_selective(length, channels, states))
    assert 0 < sum(kept) < length * 2 * channels * states / 3


RECURRENT = [case for case in MIXERS if case.causal and not case.attends and not case.memory]


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case.name)
def test_bfloat16_autocast(case: MixerCase) -> None:
    mixer = randomized(case.factory(D_MODEL, 0)).float()
    exact = copy.deepcopy(mixer).double()
    x = torch.randn(2, 200, D_MODEL)
    pad_mask = torch.ones(2, 200, dtype=torch.bool)
    pad_mask[0, :30] = False
    expected, _ = exact(x.double(), pad_mask=pad_mask)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = mixer(x, pad_mask=pad_mask)
        _, stepped = mixer.step(x[:, 0], state)
    initial = mixer.init_state(2)
    for new_state in (state, stepped):
        assert {name: entry.dtype for name, entry in new_state.items()} == {n: e.dtype for n, e in initial.items()}
    wider = {"mamba2": BFLOAT16_MAMBA2, "retention": BFLOAT16_FIRST_READINGS, "kimi": BFLOAT16_FORGETFUL}
    tolerance = wider.get(case.name.partition("-")[0], TOLERANCE[torch.bfloat16])
    assert_close(y[pad_mask], expected[pad_mask], tolerance=tolerance)
    gradients = torch.autograd.grad(y[pad_mask].float().pow(2).mean(), list(mixer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("case", RECURRENT, ids=lambda case: case.name)
def test_weights_of_any_size_have_finite_gradients(case: MixerCase) -> None:
    """Saturates everything: decays of 0 and 1, gates open and shut."""
    mixer = case.factory(D_MODEL, 0)
    for factor in (30.0, -30.0):
        for parameter in mixer.parameters():
            torch.nn.init.constant_(parameter, factor) if parameter.dim() < 2 else torch.nn.init.normal_(parameter)
        y, _ = mixer(torch.randn(2, 70, D_MODEL))
        assert y.isfinite().all()
        gradients = torch.autograd.grad(y.sum(), list(mixer.parameters()))
        assert all(gradient.isfinite().all() for gradient in gradients)
