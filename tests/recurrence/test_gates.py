"""Gates by the formulae of torch.nn.LSTM, GRU and RNN, from the states that those modules give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.recurrence import GRU, LSTM, RNN
from seqlab.recurrence.gates import activations, saturated

WIDTH, LENGTH = 6, 5


def given(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, dtype=dtype)


def states(mixer: Any, x: Tensor) -> list[dict[str, Tensor]]:
    """The mixer's state before each token and after the last, by PyTorch's own layer."""
    found = [mixer.init_state(len(x))]
    for t in range(x.shape[1]):
        found.append(mixer(x[:, : t + 1])[1])
    return found


@pytest.mark.parametrize("layer", [0, 1])
def test_of_an_lstm(layer: int) -> None:
    """Each gate by itself: W_i x + b_i + U_i h + c_i, which is the first quarter, and so on."""
    mixer = LSTM(WIDTH, num_layers=2).double()
    x, cell = given(), mixer.cell
    before = states(mixer, x)
    below = x if layer == 0 else torch.stack([state["h"][:, 0] for state in before[1:]], dim=1)
    found = activations(mixer, x)[layer]
    for place, (name, squash) in enumerate(
        [("input", torch.sigmoid), ("forget", torch.sigmoid), ("candidate", torch.tanh), ("output", torch.sigmoid)]
    ):
        quarter = slice(place * WIDTH, (place + 1) * WIDTH)
        w, u, b, c = (getattr(cell, f"{kind}_l{layer}")[quarter] for kind in WEIGHTS)
        for t in range(LENGTH):
            by_hand = squash(below[:, t] @ w.T + b + before[t]["h"][:, layer] @ u.T + c)
            torch.testing.assert_close(found[name][:, t], by_hand)
    after = torch.stack([state["c"][:, layer] for state in before[1:]], dim=1)
    torch.testing.assert_close(found["cell"], after.tanh())


WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def test_of_a_gru() -> None:
    mixer = GRU(WIDTH).double()
    x, before = given(), None
    before = states(mixer, x)
    (found,) = activations(mixer, x)
    (w_r, w_z, w_n), (u_r, u_z, u_n), (b_r, b_z, b_n), (c_r, c_z, c_n) = (
        getattr(mixer.cell, f"{kind}_l0").chunk(3) for kind in WEIGHTS
    )
    for t in range(LENGTH):
        h = before[t]["h"][:, 0]
        r = torch.sigmoid(x[:, t] @ w_r.T + b_r + h @ u_r.T + c_r)
        z = torch.sigmoid(x[:, t] @ w_z.T + b_z + h @ u_z.T + c_z)
        n = torch.tanh(x[:, t] @ w_n.T + b_n + r * (h @ u_n.T + c_n))
        for name, by_hand in (("reset", r), ("update", z), ("candidate", n)):
            torch.testing.assert_close(found[name][:, t], by_hand)
        torch.testing.assert_close(before[t + 1]["h"][:, 0], z * h + (1 - z) * n)


@pytest.mark.parametrize("both_ways", [False, True])
def test_of_an_rnn_they_are_its_outputs_whatever_is_padded(both_ways: bool) -> None:
    mixer = RNN(WIDTH, bidirectional=both_ways).double()
    mask = torch.tensor([[True] * LENGTH, [False] * 2 + [True] * 3])
    x = given()
    y = mixer(x, pad_mask=mask)[0]
    found = torch.cat([layer["hidden"] for layer in activations(mixer, x, pad_mask=mask)], dim=-1)
    torch.testing.assert_close(found[mask], y[mask])


def test_they_go_on_from_a_state() -> None:
    mixer, x = LSTM(WIDTH).double(), given()
    _, state = mixer(x[:, :3])
    (whole,), (rest,) = activations(mixer, x), activations(mixer, x[:, 3:], state)
    torch.testing.assert_close(rest["forget"], whole["forget"][:, 3:])


def test_shares_by_hand() -> None:
    layers = [
        {"forget": torch.tensor([[[0.05, 0.5]], [[0.95, 0.5]]]), "cell": torch.tensor([[[-0.95, 0.1]], [[0.0, 0.2]]])}
    ]
    assert saturated(layers) == {"gates": 0.5, "tanhs": 0.25}
    assert saturated(layers, torch.tensor([[True], [False]])) == {"gates": 0.5, "tanhs": 0.5}
    assert saturated([{}]) == {}, "of a network of relu nothing saturates"


def test_a_gate_that_is_held_open_is_a_third_of_an_lstms() -> None:
    mixer = LSTM(WIDTH, forget_bias=20.0)
    assert saturated(activations(mixer, given(torch.float32)))["gates"] == pytest.approx(1 / 3)
    assert saturated(activations(RNN(WIDTH, nonlinearity="relu"), given(torch.float32))) == {}
