"""Our recurrent mixers with copied weights against those of `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from models.theirs import randomly, transformers
from seqlab.attention import GatedDeltaNet, Mamba2
from seqlab.mixer import Mixer
from seqlab.recurrence import MLSTM, RGLRU, Mamba
from tolerances import assert_close

D_MODEL = 24
Made = tuple[Mixer, Any, Callable[[Tensor], Any]]
CONV = {"conv1d.weight": "conv.conv.weight", "conv1d.bias": "conv.conv.bias"}


def _with_the_weights(theirs: Any, ours: Mixer, names: Mapping[str, str], forward: Any = None) -> Made:
    """Ours with every weight of theirs, theirs, and what runs it."""
    weights, shapes = {}, {name: weight.shape for name, weight in ours.state_dict().items()}
    for name, weight in randomly(theirs).state_dict().items():
        name = names.get(name, name)
        weights[name] = weight.view(shapes[name])
    ours.load_state_dict(weights)
    return ours, theirs, forward or theirs


def _mamba() -> Made:
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = transformers.MambaConfig(hidden_size=D_MODEL, state_size=5, time_step_rank=3, num_hidden_layers=1)
    names = {"dt_proj.weight": "dt_weight", "dt_proj.bias": "dt_bias", "A_log": "a_log", "D": "skip"}
    return _with_the_weights(MambaMixer(config, 0), Mamba(D_MODEL, d_state=5, dt_rank=3), names | CONV)


def _recurrent_gemma() -> Made:
    from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock

    config = transformers.RecurrentGemmaConfig(hidden_size=D_MODEL, lru_width=32, num_attention_heads=4)
    theirs, names = RecurrentGemmaRecurrentBlock(config, 0), {"rg_lru.recurrent_param": "decay"}
    for part in ("weight", "bias"):
        parts = {"linear_y": "gate_proj", "linear_x": "in_proj", "linear_out": "out_proj", "conv_1d": "conv.conv"}
        names |= {f"{their_name}.{part}": f"{our_name}.{part}" for their_name, our_name in parts.items()}
        names |= {f"rg_lru.{gate}_gate_{part}": f"{gate}_gate_{part}" for gate in ("recurrent", "input")}
    return _with_the_weights(
        theirs,
        RGLRU(D_MODEL, d_state=32, num_heads=4),
        names,
        lambda x: theirs(x, torch.arange(x.shape[1]).unsqueeze(0), None, use_cache=False),
    )


def _mamba2() -> Made:
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    sizes = {"hidden_size": D_MODEL, "num_heads": 6, "head_dim": 8, "state_size": 5, "n_groups": 2}
    config = transformers.Mamba2Config(**sizes, chunk_size=16, num_hidden_layers=1, layer_norm_epsilon=1e-5)
    names = {"A_log": "a_log", "D": "skip", "norm.weight": "norm_weight"} | CONV
    return _with_the_weights(Mamba2Mixer(config, 0), Mamba2(D_MODEL, d_state=5, head_dim=8, num_groups=2), names)


def _gated_delta_net() -> Made:
    from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet

    heads = {f"linear_num_{part}_heads": 2 for part in ("key", "value")}
    sizes = {"hidden_size": D_MODEL, "linear_key_head_dim": 6, "linear_value_head_dim": 12, "num_attention_heads": 2}
    config = transformers.OlmoHybridConfig(**sizes, **heads, num_hidden_layers=4, linear_allow_neg_eigval=True)
    names = {"A_log": "a_log", "o_norm.weight": "head_norm.weight"} | CONV
    for theirs, ours in {"a": "decay", "b": "beta", "g": "gate", "o": "out"}.items():
        names[f"{theirs}_proj.weight"] = f"{ours}_proj.weight"
    mixer = GatedDeltaNet(D_MODEL, num_heads=2, head_dim=6, negative_eigenvalues=True)
    return _with_the_weights(OlmoHybridGatedDeltaNet(config, 0), mixer, names)


def _mlstm() -> Made:
    from transformers.models.xlstm import modeling_xlstm

    if modeling_xlstm.external_xlstm:
        pytest.skip("the installed xlstm package has other layers")
    sizes = {"hidden_size": D_MODEL, "num_heads": 3, "num_blocks": 1, "qk_dim_factor": 1.0, "v_dim_factor": 1.0}
    exact = {"gate_soft_cap": 1e4, "eps": 0.0, "norm_eps": 1e-5}  # a cap far from any gate
    config = transformers.xLSTMConfig(**sizes, **exact, mode="inference", return_last_states=True, chunk_size=16)
    names = {f"{name}.weight": f"{name}_proj.weight" for name in ("q", "k", "v")}
    names |= {"ogate_preact.weight": "gate_proj.weight", "multihead_norm.weight": "head_norm.weight"}
    for theirs_at, ours_at in (("igate_preact", "in_gate"), ("fgate_preact", "forget_gate")):
        names |= {f"{theirs_at}.weight": f"{ours_at}_proj.weight", f"{theirs_at}.bias": f"{ours_at}_bias"}
    return _with_the_weights(modeling_xlstm.xLSTMLayer(config), MLSTM(D_MODEL, num_heads=3), names)


@pytest.mark.parametrize(
    ("build", "length"), [(_mamba, 150), (_recurrent_gemma, 150), (_mamba2, 83), (_gated_delta_net, 83), (_mlstm, 83)]
)
def test_outputs_steps_and_gradients(build: Callable[[], Made], length: int) -> None:
    """More tokens than a chunk."""
    ours, theirs, forward = build()
    x = torch.randn(2, length, D_MODEL, requires_grad=True)
    y, expected = ours(x)[0], forward(x)
    expected = expected if isinstance(expected, Tensor) else expected[0]
    assert expected.std() > 0.1
    assert_close(y, expected)
    state = ours.init_state(2)
    for t in range(length):
        y_t, state = ours.step(x[:, t], state)
        assert_close(y_t, expected[:, t], f"step {t}")
    weight = torch.randn_like(y)
    found, reference = (torch.autograd.grad((weight * output).sum(), x)[0] for output in (y, expected))
    assert_close(found, reference, "the gradient")
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
