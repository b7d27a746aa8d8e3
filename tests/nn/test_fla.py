"""Calls to flash-linear-attention's kernels compute the same as our recurrence."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.subjects import randomized
from seqlab.attention import DeltaNet, GatedDeltaNet, GatedLinearAttention, LinearAttention, Mamba2, Retention
from seqlab.laws import error
from seqlab.mixer import Mixer
from seqlab.nn import fla
from seqlab.nn.updates import Updates
from tolerances import TOLERANCE, assert_close

FAMILY = [LinearAttention, Retention, GatedLinearAttention, Mamba2, DeltaNet, GatedDeltaNet]
D_MODEL = 32


def documented(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    *,
    scale: float,
    initial_state: Tensor,
    output_final_state: bool,
) -> tuple[Tensor, Tensor]:
    """The kernels as their package documents them, written as a loop: g (B, T, H) or (B, T, H, K) is a log decay,
    beta (B, T, H)."""
    assert output_final_state and q.shape[:3] == g.shape[:3] and (beta is None or beta.shape == q.shape[:3])
    s, outputs = initial_state, []
    for t in range(q.shape[1]):
        decay = g[:, t].exp()
        s = s * (decay[..., None, None] if g.dim() == 3 else decay[..., None])
        write = v[:, t]
        if beta is not None:
            write = beta[:, t, :, None] * (write - torch.einsum("bhkv,bhk->bhv", s, k[:, t]))
        s = s + torch.einsum("bhk,bhv->bhkv", k[:, t], write)
        outputs.append(torch.einsum("bhkv,bhk->bhv", s, scale * q[:, t]))
    return torch.stack(outputs, dim=1), s


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were called, of a package that stands in for the real one."""
    called: list[str] = []

    def kernel(name: str) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            called.append(name)
            return documented(*args, **options)

        return run

    for room in ("gla", "simple_gla", "gated_delta_rule"):
        module = ModuleType(f"fla.ops.{room}")
        setattr(module, f"chunk_{room}", kernel(room))
        monkeypatch.setitem(sys.modules, f"fla.ops.{room}", module)
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return called


@pytest.mark.parametrize("build", FAMILY)
def test_the_kernels_are_asked_for_the_same(
    build: type[Mixer], stand_in: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixer = randomized(build(D_MODEL))
    x, pad_mask = torch.randn(3, 21, D_MODEL, dtype=torch.float64), torch.ones(3, 21, dtype=torch.bool)
    pad_mask[0, :4], pad_mask[1, 15:] = False, False
    _, state = mixer(torch.randn(3, 5, D_MODEL, dtype=torch.float64))
    expected, expected_state = mixer(x, state, pad_mask=pad_mask)
    assert stand_in == [], "nothing but a CUDA device has the kernels"
    monkeypatch.setattr(fla, "usable", lambda updates: True)
    y, new_state = mixer(x, state, pad_mask=pad_mask)
    delta, channels = build in (DeltaNet, GatedDeltaNet), build is GatedLinearAttention
    assert stand_in == ["gated_delta_rule" if delta else "gla" if channels else "simple_gla"]
    assert_close(y[pad_mask], expected[pad_mask])
    for name, entry in expected_state.items():
        assert_close(new_state[name], entry, name)


@pytest.mark.parametrize(
    ("capability", "triton", "wrong"),
    [
        ((9, 0), "3.3.1", False),
        ((9, 0), "3.4.0", True),
        ((9, 0), "3.7.0", True),
        ((9, 0), "3.7.1", False),
        ((8, 9), "3.6.0", False),
        ((10, 0), "3.6.0", False),
    ],
)
@pytest.mark.parametrize("channels", [False, True])
def test_a_kernel_with_wrong_gradients_is_left(
    capability: tuple[int, int], triton: str, wrong: bool, channels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flash-linear-attention refuses these itself, after minutes of compilation."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(fla, "version", lambda package: triton)
    monkeypatch.setattr(fla, "_wrong_gradients", fla._wrong_gradients.__wrapped__)
    monkeypatch.setattr(fla, "_installed", lambda: True)
    on_gpu = SimpleNamespace(dtype=torch.bfloat16, is_cuda=True, device="cuda")
    x = torch.zeros(1, 2, 3, 4)
    updates: Any = Updates(x, x, on_gpu, x if channels else x[..., :1])  # type: ignore[arg-type]
    assert fla.usable(updates) is (channels or not wrong)
    assert fla.usable(updates._replace(beta=x[..., :1])) is not wrong


@pytest.mark.cuda
@pytest.mark.skipif(importlib.util.find_spec("fla") is None, reason="needs flash-linear-attention")
@pytest.mark.parametrize("build", FAMILY)
def test_the_kernels_compute_the_same(build: type[Mixer], monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = randomized(build(128)).float().cuda()
    x = torch.randn(2, 300, 128, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        y, _ = mixer(x)
    (gradient,) = torch.autograd.grad(y.float().square().sum(), x)
    monkeypatch.setattr(fla, "usable", lambda updates: False)
    expected, _ = mixer(x)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), x)
    assert error(y.float(), expected) <= TOLERANCE[torch.bfloat16]
    assert error(gradient, expected_gradient) <= TOLERANCE[torch.bfloat16]
