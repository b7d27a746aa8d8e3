"""Gradients through time of recurrences whose answer is known, and of a tiny model by hand."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from seqlab.models import DecoderLM, Encoder
from seqlab.nn import Block, NoFeedForward
from seqlab.nn.residual import NoResidual
from seqlab.nn.through_time import gradients_back, gradients_of
from seqlab.positions import NoPositions
from seqlab.recurrence import RNN

LENGTH = 9


def faded(x: Tensor, by: Tensor, mask: Tensor) -> Tensor:
    """h = by h + x at real tokens; by (B,) or ()."""
    h, out = torch.zeros_like(x[:, 0]), []
    for x_t, real in zip(x.unbind(1), mask.unbind(1), strict=True):
        h = torch.where(real[:, None], by * h + x_t, h)
        out.append(h)
    return torch.stack(out, dim=1)


@pytest.mark.parametrize(
    ("by", "lengths", "longest", "dtype"),
    [
        *((by, (LENGTH, 4, 0), LENGTH, torch.float64) for by in (0.5, 1.0, 1.5)),
        (0.5, (4, 4), LENGTH, torch.float32),
        (0.5, (100, 100), 100, torch.float32),  # whose squares would underflow
    ],
)
@pytest.mark.parametrize("leading", [False, True])
def test_of_a_product_over_rows_of_any_length(
    by: float, lengths: tuple[int, ...], longest: int, dtype: torch.dtype, leading: bool
) -> None:
    """Real tokens may trail or lead. Beyond the longest row there is no number."""
    x = torch.randn(len(lengths), longest, 5, dtype=dtype, requires_grad=True)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    mask = mask.flip(1) if leading else mask
    found = gradients_back(x, faded(x, torch.tensor(by), mask), mask)
    expected = torch.tensor(by, dtype=torch.float64) ** torch.arange(longest)
    expected[max(lengths) :] = torch.nan
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_a_row_that_is_too_short_does_not_count() -> None:
    """The one of 9 halves; the one of 2, whose own input weighs as much, is left out of what is farther back."""
    x = torch.ones(2, LENGTH, 1, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [2]])
    y = faded(x, torch.tensor([[0.5], [0.0]]), mask)
    found = gradients_back(x, y, mask)
    assert 0 < found[1] < 0.5, "both rows, of which one forgets at once"
    torch.testing.assert_close(found[2:], torch.tensor(0.5, dtype=torch.float64) ** torch.arange(2, LENGTH))


def test_of_a_model_by_hand() -> None:
    """One channel: h' = tanh(w x + b + u h + c), whose gradient k steps back is w times k factors u (1 - h^2) and the
    last slope."""
    block = partial(Block, norm_place="none", ffn=NoFeedForward, residual=NoResidual)
    model = Encoder(
        3, LENGTH, mixer=RNN, d_model=1, num_layers=1, positions=NoPositions, block=block, embed=nn.Linear
    ).double()
    inputs = torch.randn(1, LENGTH, 3, dtype=torch.float64)
    with torch.no_grad():
        h = model(inputs)[0, :, 0]
        rnn = model.get_submodule("stack.blocks.0.mixer.cell")
        assert isinstance(rnn, nn.RNN)
        factors = rnn.weight_hh_l0.item() * (1 - h.square())
    expected = [abs(float(factors[LENGTH - k :].prod())) for k in range(LENGTH)]
    # That of its own input has the last slope too; the input k steps back the slope there, in place of the last.
    slopes = 1 - h.square()
    expected = [value * float(slopes[LENGTH - 1 - k] / slopes[-1]) for k, value in enumerate(expected)]
    found = gradients_of(model, lambda: model(inputs))
    assert found.tolist() == pytest.approx(expected, rel=1e-9)
    assert all(weight.grad is None for weight in model.parameters())


def test_a_model_without_a_stack_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no stack of blocks"):
        gradients_of(nn.Linear(1, 1), lambda: None)


def test_nothing_is_left_behind() -> None:
    model = DecoderLM(5, LENGTH, d_model=8, num_layers=1)
    tokens = torch.randint(5, (2, LENGTH))
    gradients_of(model, lambda: model(tokens))
    assert not model.stack._forward_hooks and not model.stack._forward_pre_hooks
    with torch.no_grad():
        assert not model(tokens)[0].requires_grad
