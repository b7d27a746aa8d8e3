"""Our recurrent mixers with copied weights against those of `transformers`: random weights, nothing downloaded."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor, nn

from seqlab.attention import GatedDeltaNet, Mamba2
from seqlab.mixer import Mixer
from seqlab.recurrence import MLSTM
from tolerances import TOLERANCE, assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

D_MODEL, LENGTH = 24, 83


def _randomize(module: nn.Module) -> None:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)


def _load(ours: Mixer, theirs: nn.Module, renamed: dict[str, str]) -> None:
    """Every parameter of theirs, by its name in ours."""
    weights = {}
    for name, weight in theirs.state_dict().items():
        weights[renamed.get(name, name)] = weight
    shapes = {name: weight.shape for name, weight in ours.state_dict().items() if name in weights}
    weights = {name: weight.view(shapes.get(name, weight.shape)) for name, weight in weights.items()}
    ours.load_state_dict(weights)


def _mamba2() -> tuple[Mixer, nn.Module]:
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = transformers.Mamba2Config(
        hidden_size=D_MODEL,
        num_heads=6,
        head_dim=8,
        state_size=5,
        n_groups=2,
        chunk_size=16,
        num_hidden_layers=1,
        layer_norm_epsilon=1e-5,
    )
    theirs = Mamba2Mixer(config, layer_idx=0)
    _randomize(theirs)
    ours = Mamba2(D_MODEL, d_state=5, head_dim=8, num_groups=2)
    renamed = {"A_log": "a_log", "D": "skip", "norm.weight": "norm_weight"}
    renamed |= {f"conv1d.{part}": f"conv.conv.{part}" for part in ("weight", "bias")}
    _load(ours, theirs, renamed)
    return ours, theirs


def _gated_delta_net() -> tuple[Mixer, nn.Module]:
    from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet

    config = transformers.OlmoHybridConfig(
        hidden_size=D_MODEL,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=6,
        linear_value_head_dim=12,
        linear_allow_neg_eigval=True,
        num_hidden_layers=4,
        num_attention_heads=2,
    )
    theirs = OlmoHybridGatedDeltaNet(config, layer_idx=0)
    _randomize(theirs)
    ours = GatedDeltaNet(D_MODEL, num_heads=2, head_dim=6, negative_eigenvalues=True)
    renamed = {"conv1d.weight": "conv.conv.weight", "A_log": "a_log", "o_norm.weight": "head_norm.weight"}
    theirs_to_ours = {"a_proj": "decay_proj", "b_proj": "beta_proj", "g_proj": "gate_proj", "o_proj": "out_proj"}
    renamed |= {f"{name}.weight": f"{our_name}.weight" for name, our_name in theirs_to_ours.items()}
    _load(ours, theirs, renamed)
    return ours, theirs


def _mlstm() -> tuple[Mixer, nn.Module]:
    from transformers.models.xlstm import modeling_xlstm

    if modeling_xlstm.external_xlstm:
        pytest.skip("the installed xlstm package has other layers")
    config = transformers.xLSTMConfig(
        hidden_size=D_MODEL,
        num_heads=3,
        num_blocks=1,
        qk_dim_factor=1.0,
        v_dim_factor=1.0,
        gate_soft_cap=1e4,  # far from any gate
        eps=0.0,
        norm_eps=1e-5,
        mode="inference",
        return_last_states=True,
        chunk_size=16,
    )
    theirs = modeling_xlstm.xLSTMLayer(config)
    _randomize(theirs)
    ours = MLSTM(D_MODEL, num_heads=3)
    renamed = {f"{name}.weight": f"{name}_proj.weight" for name in ("q", "k", "v")}
    renamed["ogate_preact.weight"] = "gate_proj.weight"
    renamed["multihead_norm.weight"] = "head_norm.weight"
    for theirs_at, ours_at in (("igate_preact", "in_gate"), ("fgate_preact", "forget_gate")):
        renamed |= {f"{theirs_at}.weight": f"{ours_at}_proj.weight", f"{theirs_at}.bias": f"{ours_at}_bias"}
    _load(ours, theirs, renamed)
    return ours, theirs


def _output(theirs: nn.Module, x: Tensor) -> Tensor:
    y = theirs(x)
    return y if isinstance(y, Tensor) else y[0]


@pytest.mark.parametrize("build", [_mamba2, _gated_delta_net, _mlstm], ids=["mamba2", "gated-delta-net", "mlstm"])
def test_outputs_steps_and_gradients(build: object) -> None:
    assert callable(build)
    ours, theirs = build()
    x = torch.randn(2, LENGTH, D_MODEL, requires_grad=True)
    expected = _output(theirs, x)
    y, _ = ours(x)
    assert expected.std() > 0.1
    assert_close(y, expected, "the output", tolerance=TOLERANCE[torch.float32])

    state = ours.init_state(2)
    for t in range(LENGTH):
        y_t, state = ours.step(x[:, t], state)
        assert_close(y_t, expected[:, t], f"the output of step {t}", tolerance=TOLERANCE[torch.float32])

    weight = torch.randn_like(y)
    found, reference = (torch.autograd.grad((weight * output).sum(), x)[0] for output in (y, expected))
    assert_close(found, reference, "the gradient", tolerance=TOLERANCE[torch.float32])
