"""The number of each mixer's parameters, since one more or less would leave stored checkpoints behind, and where its
decays begin."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from seqlab.attention import GatedDeltaNet, KimiDeltaAttention, Mamba2, Mamba3
from seqlab.mixer import Mixer
from seqlab.recurrence import LRU, RGLRU, S4D, Mamba

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts/mixers.py"))


def test_a_mixer_has_as_many_parameters_as_were_recorded() -> None:
    """`python scripts/mixers.py` records those of a new one."""
    assert SCRIPT["num_parameters"]() == json.loads(SCRIPT["PARAMETERS"].read_text(encoding="utf-8"))


BEGINS: list[tuple[Callable[[], Mixer], str, Callable[[Tensor], Tensor], float, float]] = [
    (lambda: S4D(512), "log_dt", torch.exp, 0.001, 0.1),
    (lambda: S4D(512, dt_min=0.01, dt_max=0.02), "log_dt", torch.exp, 0.01, 0.02),
    (lambda: Mamba(512), "dt_bias", softplus, 0.001, 0.1),
    (lambda: Mamba(512, dt_min=0.01, dt_max=0.02), "dt_bias", softplus, 0.01, 0.02),
    (lambda: Mamba2(512, head_dim=2), "dt_bias", softplus, 0.001, 0.1),
    (lambda: Mamba2(512, head_dim=2), "a_log", torch.exp, 1, 16),
    (lambda: GatedDeltaNet(512, num_heads=256), "dt_bias", softplus, 0.001, 0.1),
    (lambda: GatedDeltaNet(512, num_heads=256), "a_log", torch.exp, 1, 16),
    (lambda: KimiDeltaAttention(512), "dt_bias", softplus, 0.001, 0.1),
    (lambda: KimiDeltaAttention(512, num_heads=256), "a_log", torch.exp, 1, 16),
    (lambda: Mamba3(512, head_dim=2), "dt_bias", softplus, 0.001, 0.1),
    (lambda: RGLRU(512), "decay", lambda decay: torch.exp(-8 * softplus(decay)), 0.9, 0.999),
    (lambda: LRU(512, r_min=0.4, r_max=0.8), "nu_log", lambda nu: torch.exp(-torch.exp(nu)), 0.4, 0.8),
    (lambda: LRU(512, max_phase=1.0), "theta_log", torch.exp, 0, 1),
]


@pytest.mark.parametrize(("make", "name", "value", "least", "most"), BEGINS)
def test_a_decay_begins_in_its_range_and_fills_it(
    make: Callable[[], Mixer], name: str, value: Callable[[Tensor], Tensor], least: float, most: float
) -> None:
    begins = value(make().get_parameter(name).detach())
    assert least * (1 - 1e-5) <= begins.min() and begins.max() <= most * (1 + 1e-5)
    assert begins.min() < least + 0.05 * (most - least) and begins.max() > most - 0.1 * (most - least)
