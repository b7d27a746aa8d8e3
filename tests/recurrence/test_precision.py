"""Under bfloat16 autocast the state stays in float32, and outputs and gradients are what they are without it."""

from __future__ import annotations

import copy

import pytest
import torch

from contracts.cases import D_MODEL, MIXERS, MixerCase
from contracts.subjects import randomized
from tolerances import BFLOAT16_FIRST_READINGS, BFLOAT16_MAMBA2, TOLERANCE, assert_close

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
    wider = {"mamba2": BFLOAT16_MAMBA2, "retention": BFLOAT16_FIRST_READINGS}
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
