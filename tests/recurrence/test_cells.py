"""The options of RNN, LSTM and GRU, and their gates by the formulae of torch.nn's modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqlab.probes.gates import activations, saturated
from seqlab.recurrence import GRU, LSTM, RNN
from tolerances import assert_close

D_MODEL = 6
cells = pytest.mark.parametrize("build", [RNN, LSTM, GRU])


def test_an_irnn_begins_as_a_sum() -> None:
    """Le et al. 2015: with positive inputs, the state is the sum of what was put in."""
    rnn = RNN(D_MODEL, nonlinearity="relu", identity_init=True, num_layers=2)
    torch.nn.init.eye_(rnn.cell.get_parameter("weight_ih_l0"))
    torch.nn.init.eye_(rnn.cell.get_parameter("weight_ih_l1"))
    x = torch.rand(2, 9, D_MODEL)
    assert_close(rnn(x)[0], x.cumsum(dim=1).cumsum(dim=1))


def test_forget_bias_is_the_sum_of_both_biases() -> None:
    torch.manual_seed(1)
    plain = LSTM(D_MODEL, num_layers=2)
    torch.manual_seed(1)
    remembering = LSTM(D_MODEL, num_layers=2, forget_bias=1.5)
    for layer in (0, 1):
        parts = [getattr(remembering.cell, f"bias_{side}_l{layer}").chunk(4) for side in ("ih", "hh")]
        assert (parts[0][1] + parts[1][1]).tolist() == [1.5] * D_MODEL
        for gate in (0, 2, 3):
            assert torch.equal(parts[0][gate], getattr(plain.cell, f"bias_ih_l{layer}").chunk(4)[gate])


@cells
def test_the_loop_is_the_fused_kernel(build: Any) -> None:
    fused = build(D_MODEL, num_layers=2).double()
    looped = build(D_MODEL, num_layers=2, looped=True).double()
    looped.load_state_dict(fused.state_dict())
    x = torch.randn(3, 9, D_MODEL, dtype=torch.float64)
    pad_mask = torch.ones(3, 9, dtype=torch.bool)
    pad_mask[0, :4], pad_mask[1, 5:], pad_mask[2] = False, False, False
    state = {name: torch.randn_like(entry) for name, entry in fused.init_state(3).items()}
    (y, new), (expected, expected_new) = looped(x, state, pad_mask=pad_mask), fused(x, state, pad_mask=pad_mask)
    assert_close(y[pad_mask], expected[pad_mask])
    for name, entry in expected_new.items():
        assert_close(new[name], entry)
        assert torch.equal(new[name][2], state[name][2])


@cells
@pytest.mark.parametrize("looped", [False, True])
def test_dropout_acts_between_layers_in_training_only(build: Any, looped: bool) -> None:
    mixer, x = build(64, num_layers=2, dropout=0.5, looped=looped), torch.randn(4, 3, 64)
    (y, state), (again, state_again) = mixer(x), mixer(x)
    assert not torch.equal(y, again)
    assert torch.equal(state["h"][:, 0], state_again["h"][:, 0]), "the first layer reads x as it is"
    mixer.eval()
    assert torch.equal(mixer(x)[0], mixer(x)[0])


@cells
def test_what_is_refused(build: Any) -> None:
    for width, options, message in (
        (D_MODEL, {"num_layers": 0}, "num_layers must be at least 1, got 0"),
        (D_MODEL, {"dropout": 0.1}, "dropout acts between layers"),
        (5, {"bidirectional": True}, "even d_model, half for each direction, got 5"),
        (D_MODEL, {"bidirectional": True, "looped": True}, "set looped or bidirectional, not both"),
    ):
        with pytest.raises(ValueError, match=message):
            build(width, **options)
    both_ways = build(D_MODEL, bidirectional=True)
    with pytest.raises(ValueError, match="no state and no step"):
        both_ways(torch.randn(1, 2, D_MODEL), build(D_MODEL).init_state(1))


LENGTH = 5


def given(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, LENGTH, D_MODEL, dtype=dtype)


def entries(mixer: Any, x: Tensor, name: str) -> Tensor:
    """(B, T + 1, L, D): one entry of the state before each token and after the last, by PyTorch's own layer."""
    states = [mixer.init_state(len(x)), *(mixer(x[:, : t + 1])[1] for t in range(x.shape[1]))]
    return torch.stack([state[name] for state in states], dim=1)


def sides(mixer: Any, layer: int, x: Tensor, h: Tensor, num_gates: int) -> list[tuple[Tensor, Tensor]]:
    """Each gate's W x + b and U h + c."""
    weights = mixer.cell.get_parameter
    given = [
        (y @ weights(f"weight_{side}_l{layer}").T + weights(f"bias_{side}_l{layer}")).chunk(num_gates, dim=-1)
        for side, y in (("ih", x), ("hh", h))
    ]
    return list(zip(*given, strict=True))


@pytest.mark.parametrize("layer", [0, 1])
def test_gates_of_an_lstm(layer: int) -> None:
    mixer, x = LSTM(D_MODEL, num_layers=2).double(), given()
    h = entries(mixer, x, "h")
    found = activations(mixer, x)[layer]
    below = x if layer == 0 else h[:, 1:, 0]
    i, f, g, o = (from_x + from_h for from_x, from_h in sides(mixer, layer, below, h[:, :-1, layer], 4))
    by_hand = {"input": i.sigmoid(), "forget": f.sigmoid(), "candidate": g.tanh(), "output": o.sigmoid()}
    for name, expected in by_hand.items():
        assert_close(found[name], expected, name)
    assert_close(found["cell"], entries(mixer, x, "c")[:, 1:, layer].tanh())


def test_gates_of_a_gru() -> None:
    mixer, x = GRU(D_MODEL).double(), given()
    h = entries(mixer, x, "h")[:, :, 0]
    (found,) = activations(mixer, x)
    (r_x, r_h), (z_x, z_h), (n_x, n_h) = sides(mixer, 0, x, h[:, :-1], 3)
    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
    n = (n_x + r * n_h).tanh()
    for name, by_hand in (("reset", r), ("update", z), ("candidate", n)):
        assert_close(found[name], by_hand, name)
    assert_close(h[:, 1:], z * h[:, :-1] + (1 - z) * n)


@pytest.mark.parametrize("both_ways", [False, True])
def test_gates_of_an_rnn_they_are_its_outputs_whatever_is_padded(both_ways: bool) -> None:
    mixer, x = RNN(D_MODEL, bidirectional=both_ways).double(), given()
    mask = torch.tensor([[True] * LENGTH, [False] * 2 + [True] * 3])
    found = torch.cat([layer["hidden"] for layer in activations(mixer, x, pad_mask=mask)], dim=-1)
    assert_close(found[mask], mixer(x, pad_mask=mask)[0][mask])


def test_gates_go_on_from_a_state() -> None:
    mixer, x = LSTM(D_MODEL).double(), given()
    _, state = mixer(x[:, :3])
    (whole,), (rest,) = activations(mixer, x), activations(mixer, x[:, 3:], state)
    assert_close(rest["forget"], whole["forget"][:, 3:])


def test_saturated_shares_by_hand() -> None:
    layers = [
        {"forget": torch.tensor([[[0.05, 0.5]], [[0.95, 0.5]]]), "cell": torch.tensor([[[-0.95, 0.1]], [[0.0, 0.2]]])}
    ]
    assert saturated(layers) == {"gates": 0.5, "tanhs": 0.25}
    assert saturated(layers, torch.tensor([[True], [False]])) == {"gates": 0.5, "tanhs": 0.5}
    assert saturated([{}]) == {}, "of a network of relu nothing saturates"
    assert saturated(activations(RNN(D_MODEL, nonlinearity="relu"), given(torch.float32))) == {}
    open_gate = activations(LSTM(D_MODEL, forget_bias=20.0), given(torch.float32))
    assert saturated(open_gate)["gates"] == pytest.approx(1 / 3), "one of an LSTM's three"
