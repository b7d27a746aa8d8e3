"""The options of RNN, LSTM and GRU: how they begin and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
        (D_MODEL, {"bidirectional": True, "looped": True}, "leave out looped or bidirectional"),
    ):
        with pytest.raises(ValueError, match=message):
            build(width, **options)
    both_ways = build(D_MODEL, bidirectional=True)
    with pytest.raises(ValueError, match="no state and no step"):
        both_ways(torch.randn(1, 2, D_MODEL), build(D_MODEL).init_state(1))
