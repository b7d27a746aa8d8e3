"""Gates by the formulae of torch.nn.LSTM, GRU and RNN, from the states that those modules give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.recurrence import GRU, LSTM, RNN
from seqlab.recurrence.gates import activations, saturated
from tolerances import assert_close

WIDTH, LENGTH = 6, 5


def given(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, dtype=dtype)


def entries(mixer: Any, x: Tensor, name: str) -> Tensor:
    """(B, T + 1, L, D): one entry of the state before each token and after the last, by PyTorch's own layer."""
    states = [mixer.init_state(len(x)), *(mixer(x[:, : t + 1])[1] for t in range(x.shape[1]))]
    return torch.stack([state[name] for state in states], dim=1)


def sides(mixer: Any, layer: int, x: Tensor, h: Tensor, num_gates: int) -> list[tuple[Tensor, Tensor]]:
    """Of each gate W x + b and U h + c."""
    weights = mixer.cell.get_parameter
    given = [
        (y @ weights(f"weight_{side}_l{layer}").T + weights(f"bias_{side}_l{layer}")).chunk(num_gates, dim=-1)
        for side, y in (("ih", x), ("hh", h))
    ]
    return list(zip(*given, strict=True))


@pytest.mark.parametrize("layer", [0, 1])
def test_of_an_lstm(layer: int) -> None:
    mixer, x = LSTM(WIDTH, num_layers=2).double(), given()
    h = entries(mixer, x, "h")
    found = activations(mixer, x)[layer]
    below = x if layer == 0 else h[:, 1:, 0]
    i, f, g, o = (from_x + from_h for from_x, from_h in sides(mixer, layer, below, h[:, :-1, layer], 4))
    by_hand = {"input": i.sigmoid(), "forget": f.sigmoid(), "candidate": g.tanh(), "output": o.sigmoid()}
    for name, expected in by_hand.items():
        assert_close(found[name], expected, name)
    assert_close(found["cell"], entries(mixer, x, "c")[:, 1:, layer].tanh())


def test_of_a_gru() -> None:
    mixer, x = GRU(WIDTH).double(), given()
    h = entries(mixer, x, "h")[:, :, 0]
    (found,) = activations(mixer, x)
    (r_x, r_h), (z_x, z_h), (n_x, n_h) = sides(mixer, 0, x, h[:, :-1], 3)
    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    for name, by_hand in (("reset", r), ("update", z), ("candidate", n)):
        assert_close(found[name], by_hand, name)
    assert_close(h[:, 1:], z * h[:, :-1] + (1 - z) * n)


@pytest.mark.parametrize("both_ways", [False, True])
def test_of_an_rnn_they_are_its_outputs_whatever_is_padded(both_ways: bool) -> None:
    mixer, x = RNN(WIDTH, bidirectional=both_ways).double(), given()
    mask = torch.tensor([[True] * LENGTH, [False] * 2 + [True] * 3])
    found = torch.cat([layer["hidden"] for layer in activations(mixer, x, pad_mask=mask)], dim=-1)
    assert_close(found[mask], mixer(x, pad_mask=mask)[0][mask])


def test_they_go_on_from_a_state() -> None:
    mixer, x = LSTM(WIDTH).double(), given()
    _, state = mixer(x[:, :3])
    (whole,), (rest,) = activations(mixer, x), activations(mixer, x[:, 3:], state)
    assert_close(rest["forget"], whole["forget"][:, 3:])


def test_shares_by_hand() -> None:
    layers = [
        {"forget": torch.tensor([[[0.05, 0.5]], [[0.95, 0.5]]]), "cell": torch.tensor([[[-0.95, 0.1]], [[0.0, 0.2]]])}
    ]
    assert saturated(layers) == {"gates": 0.5, "tanhs": 0.25}
    assert saturated(layers, torch.tensor([[True], [False]])) == {"gates": 0.5, "tanhs": 0.5}
    assert saturated([{}]) == {}, "of a network of relu nothing saturates"
    assert saturated(activations(RNN(WIDTH, nonlinearity="relu"), given(torch.float32))) == {}
    open_gate = activations(LSTM(WIDTH, forget_bias=20.0), given(torch.float32))
    assert saturated(open_gate)["gates"] == pytest.approx(1 / 3), "one of an LSTM's three"
