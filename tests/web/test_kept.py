"""The share of a recurrence's state that a token keeps, as the page measures it, is the decay of the paper's equations,
computed here in float64 from the trained weights."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from export.toys import Export, Exported
from seqlab.attention import Attention, DeltaNet, GatedLinearAttention, SlidingWindow
from seqlab.positions import NoPositions
from seqlab.recurrence import GRU, LRU, LSTM, MLSTM, RGLRU, RNN, RWKV7, S4D, CausalConv, Mamba, MinGRU
from web.programs import answers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]

IDS = [3, 5, 8, 4, 4, 9, 6, 3, 7, 10, 5, 6]


def kept(folder: Path) -> dict[str, dict[str, Any]]:
    """The parts by name: `shares` (T - 1) and, where the channels do not mix, `channels` (T - 1, N)."""
    [found] = answers(folder, [{"kept": IDS}])
    return {one["name"]: one for one in found}


def read(exported: Exported) -> tuple[list[Any], list[Tensor]]:
    """The mixers in float64 and what each reads, (T, D)."""
    model: Any = deepcopy(exported.model).double()
    mixers, inputs = [block.mixer for block in model.stack.blocks], {}
    for mixer in mixers:
        mixer.register_forward_pre_hook(
            lambda module, args, kwargs: inputs.update({module: args[0][0]}), with_kwargs=True
        )
    with torch.no_grad():
        model(torch.tensor([IDS]))
    return mixers, [inputs[mixer] for mixer in mixers]


def forget_gates(weights: dict[str, Tensor], x: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Forget gates of each token, (T, D), and the outputs (T, D): Gers et al. 2000, in PyTorch's order i, f, g, o."""
    w, u, b, c = (weights[f"{name}_l{layer}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h = cell = torch.zeros(u.shape[1], dtype=torch.float64)
    gates, outputs = [], []
    for x_t in x:
        i, f, g, o = (w @ x_t + b + u @ h + c).chunk(4)
        f = 1 / (1 + torch.exp(-f))
        cell = f * cell + torch.tanh(g) / (1 + torch.exp(-i))
        h = torch.tanh(cell) / (1 + torch.exp(-o))
        gates.append(f)
        outputs.append(h)
    return torch.stack(gates), torch.stack(outputs)


def check(found: dict[str, Any], expected: Tensor) -> None:
    """The share of each channel (T, N), but for the first token. Where little was kept of little, it is rounding."""
    channels = np.array(found["channels"], dtype=float)
    difference = np.abs(channels - expected[1:].flatten(1).numpy())
    assert np.median(difference) < 1e-5 and np.quantile(difference, 0.99) < 2e-3
    assert np.ptp(channels) > 0.05, "the shares say nothing"


def test_an_lstm_keeps_what_its_forget_gate_lets_through(export: Export) -> None:
    """One that is a layer, and one that is two."""
    exported = export([LSTM, partial(LSTM, num_layers=2)], NoPositions)
    found, (mixers, inputs) = kept(exported.folder), read(exported)
    for layer, (mixer, x) in enumerate(zip(mixers, inputs, strict=True)):
        for inner in range(layer + 1):
            gates, x = forget_gates(dict(mixer.cell.named_parameters()), x.detach(), inner)
            name = f"{layer}_c" + (f", {inner + 1} of 2" if layer else "")
            check(found[name], gates.detach())
            assert found[name.replace("_c", "_h")]["channels"] is None, "its h goes through the gates of all channels"


def min_gru(mixer: Any, x: Tensor) -> Tensor:
    """1 - z_t (Feng et al. 2024, section 3.1.3)."""
    z = (x @ mixer.in_proj.weight.T + mixer.in_proj.bias).chunk(2, dim=-1)[0]
    return 1 - 1 / (1 + torch.exp(-z))


def lru(mixer: Any, x: Tensor) -> Tensor:
    """|lambda| = exp(-exp(nu)) (Orvieto et al. 2023, equation 4)."""
    return torch.exp(-torch.exp(mixer.nu_log)).expand(len(x), -1)


def s4d(mixer: Any, x: Tensor) -> Tensor:
    """|exp(dt A)| (Gu et al. 2022, equation 2)."""
    return torch.exp(-torch.exp(mixer.log_dt)[:, None] * torch.exp(mixer.log_decay)).expand(len(x), -1, -1)


def convolved(mixer: Any, x: Tensor) -> Tensor:
    """Each token's sum over the last of a short convolution."""
    weight, bias = mixer.conv.conv.weight.squeeze(1), mixer.conv.conv.bias  # (D, W)
    before = torch.cat((torch.zeros(weight.shape[1] - 1, x.shape[1], dtype=x.dtype), x))
    return torch.stack([(before[t : t + weight.shape[1]].T * weight).sum(1) + bias for t in range(len(x))])


def rg_lru(mixer: Any, x: Tensor) -> Tensor:
    """a^(8 r_t) (De et al. 2024, section 2.4)."""
    u = convolved(mixer, x @ mixer.in_proj.weight.T + mixer.in_proj.bias)
    r = torch.sigmoid(u @ torch.block_diag(*mixer.recurrent_gate_weight) + mixer.recurrent_gate_bias.flatten())
    return (1 / (1 + torch.exp(mixer.decay))) ** (8 * r)


def mamba(mixer: Any, x: Tensor) -> Tensor:
    """exp(dt A) (Gu & Dao 2023, algorithm 2)."""
    u = convolved(mixer, (x @ mixer.in_proj.weight.T).chunk(2, dim=-1)[0])
    u = u / (1 + torch.exp(-u))
    low = (u @ mixer.x_proj.weight.T)[:, : mixer.dt_rank]
    dt = torch.log1p(torch.exp(low @ mixer.dt_weight.T + mixer.dt_bias))
    return torch.exp(-dt[:, :, None] * torch.exp(mixer.a_log))


DECAYS: dict[Any, Callable[[Any, Tensor], Tensor]] = {MinGRU: min_gru, RGLRU: rg_lru, LRU: lru, S4D: s4d, Mamba: mamba}


def test_a_linear_recurrence_keeps_its_decay(export: Export) -> None:
    exported = export([*DECAYS], NoPositions, num_layers=len(DECAYS))
    found, (mixers, inputs) = kept(exported.folder), read(exported)
    assert list(found) == [f"{layer}_h" for layer in range(len(DECAYS))], "windows of a convolution are no memory"
    for one, module, x in zip(found.values(), mixers, inputs, strict=True):
        check(one, DECAYS[type(module)](module, x.detach()).detach())


def test_where_channels_mix_it_is_a_share_of_the_whole(export: Export) -> None:
    """Each layer alone, by PyTorch's step with its entry and without."""
    exported = export([GRU, RNN, DeltaNet, partial(RWKV7, head_dim=8)], NoPositions, num_layers=4)
    model: Any = deepcopy(exported.model).double()
    found = kept(exported.folder)
    assert {name.split("_")[0] for name in found} == {*"0123"}
    with torch.no_grad():
        states = [model(torch.tensor([IDS[:end]]))[1] for end in range(1, len(IDS))]
        for name, one in found.items():
            assert one["channels"] is None
            expected: list[float] = []
            for state, token in zip(states, IDS[1:], strict=True):
                whole, without = (
                    model.step(torch.tensor([token]), state | some)[1][name]
                    for some in ({}, {name: torch.zeros_like(state[name])})
                )
                expected.append(((whole - without).norm() / state[name].norm()).item())
            np.testing.assert_allclose(one["shares"], expected, rtol=1e-3)


def test_channels_of_a_gated_matrix_do_not_mix(export: Export) -> None:
    exported = export(partial(GatedLinearAttention, num_heads=2), NoPositions, num_layers=1)
    shares: NDArray[np.float64] = np.array(kept(exported.folder)["0_s"]["channels"], dtype=float)
    mixer: Any = exported.model.stack.blocks[0].mixer
    by_key = shares.reshape(len(shares), 2, mixer.head_dim, -1)
    # A gate is of a head's key channel, and so the same along the value's.
    assert np.quantile(np.abs(by_key - np.median(by_key, axis=-1, keepdims=True)), 0.95) < 1e-2
    assert np.ptp(by_key[..., 0]) > 0.05


def test_what_holds_the_last_tokens_is_no_state_that_fades(export: Export) -> None:
    """Nor are the exponents of an mLSTM."""
    window = partial(Attention, pattern=partial(SlidingWindow, window=4))
    assert list(kept(export([Attention, window, CausalConv, MLSTM], NoPositions, num_layers=4).folder)) == ["3_s"]
