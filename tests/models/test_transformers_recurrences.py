"""Our recurrences with copied weights against `transformers`: Mamba's mixer and RecurrentGemma's recurrent block."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqlab.mixer import Mixer
from seqlab.recurrence import RGLRU, Mamba
from tolerances import assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

D_MODEL = 24


def _copy(theirs: nn.Module, ours: Mixer, renamed: dict[str, str]) -> None:
    """Random weights, the same in both."""
    weights = {}
    for name, weight in theirs.named_parameters():
        nn.init.normal_(weight, std=0.4)
        for old, new in renamed.items():
            name = new + name.removeprefix(old) if name.startswith(old) else name
        weights[name] = weight.detach()
    ours.load_state_dict(weights)


def _mamba() -> tuple[Mixer, nn.Module, Callable[[Tensor], Tensor]]:
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = transformers.MambaConfig(hidden_size=D_MODEL, state_size=5, time_step_rank=3, num_hidden_layers=1)
    theirs, ours = MambaMixer(config, 0), Mamba(D_MODEL, d_state=5, dt_rank=3)
    renamed = {
        "conv1d": "conv.conv", "dt_proj.weight": "dt_weight", "dt_proj.bias": "dt_bias", "A_log": "a_log", "D": "skip",
    }  # fmt: skip
    _copy(theirs, ours, renamed)
    return ours, theirs, lambda x: theirs(x)


def _recurrent_gemma() -> tuple[Mixer, nn.Module, Callable[[Tensor], Tensor]]:
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock

    config = transformers.RecurrentGemmaConfig(hidden_size=D_MODEL, lru_width=32, num_attention_heads=4)
    theirs, ours = RecurrentGemmaRecurrentBlock(config, 0), RGLRU(D_MODEL, d_state=32, num_heads=4)
    renamed = {
        "linear_y": "gate_proj", "linear_x": "in_proj", "linear_out": "out_proj", "conv_1d": "conv.conv",
        "rg_lru.recurrent_param": "decay", "rg_lru.": "",
    }  # fmt: skip
    _copy(theirs, ours, renamed)

    def forward(x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[1]).unsqueeze(0)
        y: Tensor = theirs(x, positions, None, use_cache=False)[0]
        return y

    return ours, theirs, forward


@pytest.mark.parametrize("build", [_mamba, _recurrent_gemma])
def test_outputs_steps_and_gradients(build: Callable[[], tuple[Mixer, nn.Module, Callable[[Tensor], Tensor]]]) -> None:
    ours, theirs, forward = build()
    x = torch.randn(2, 150, D_MODEL, requires_grad=True)
    y, expected = ours(x)[0], forward(x)
    assert expected.std() > 0.1
    assert_close(y, expected)
    state = ours.init_state(2)
    for t in range(x.shape[1]):
        y_t, state = ours.step(x[:, t], state)
        assert_close(y_t, expected[:, t], f"step {t}")
    weight = torch.randn_like(y)
    assert_close(torch.autograd.grad((weight * y).sum(), x)[0], torch.autograd.grad((weight * expected).sum(), x)[0])
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
