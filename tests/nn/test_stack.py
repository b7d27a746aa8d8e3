"""Activations that a stack of blocks computes again in the backward pass, and its gradients through time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.cases import D_MODEL, MIXERS, MixerCase
from peak import peak
from seqlab.attention import AdditiveAttention, Attention, Bidirectional
from seqlab.models import Classifier, DecoderLM, Encoder, EncoderDecoder, RNNSeq2Seq
from seqlab.nn import Block, NoFeedForward, Stack
from seqlab.nn.residual import NoResidual
from seqlab.nn.stack import forget_activations
from seqlab.positions import NoPositions
from seqlab.probes.through_time import gradients_back, gradients_of
from seqlab.recurrence import RNN

Making = Callable[[], tuple[nn.Module, Callable[[Any], Tensor]]]
"""Makes a model, and what runs it."""
DROPPING = partial(Block, dropout=0.2, stochastic_depth=0.1)
TOKENS = torch.arange(24).view(3, 8) % 11
REAL = torch.arange(8) < torch.tensor([[8], [5], [3]])


def decoder() -> tuple[nn.Module, Callable[[Any], Tensor]]:
    model = DecoderLM(11, 8, d_model=8, mixer=partial(Attention, num_heads=2), block=DROPPING, dropout=0.1)
    return model, lambda model: model(TOKENS, pad_mask=REAL)[0]


def encoder() -> Any:
    mixer = partial(Attention, num_heads=2, pattern=Bidirectional)
    return partial(Encoder, d_model=8, num_layers=2, mixer=mixer, block=DROPPING, dropout=0.1)


def writer() -> tuple[nn.Module, Callable[[Any], Tensor]]:
    model = EncoderDecoder(11, 11, 8, encoder=encoder(), num_layers=2, mixer=AdditiveAttention, block=DROPPING)
    return model, lambda model: model(TOKENS, model.begin(TOKENS, REAL), pad_mask=REAL)[0]


MODELS: dict[str, Making] = {
    "decoder": decoder,
    "encoder-decoder": writer,
    "classifier": lambda: (Classifier(11, 5, 8, encoder=encoder()), lambda model: model(TOKENS, pad_mask=REAL)),
}


def layer(case: MixerCase) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    """A block around a mixer, in a stack of its own."""
    stack = Stack([case.factory(D_MODEL, 0)], positions=NoPositions(D_MODEL, 8), block=DROPPING, causal=case.causal)
    x, memory = torch.randn(2, 3, 8, D_MODEL)
    state = partial(stack.init_state, 3, memory) if case.memory else lambda: None
    return stack, lambda stack: stack(x, state(), pad_mask=REAL)[0]


def step(make: Making, *, forget: bool) -> list[Tensor]:
    """The output of a step, the random numbers drawn after it, and the gradients of every weight."""
    torch.manual_seed(3)
    model, run = make()
    if forget:
        forget_activations(model)
    y = run(model)
    y.square().sum().backward()
    return [y.detach(), torch.rand(4), *(weight.grad for weight in model.parameters() if weight.grad is not None)]


@pytest.mark.parametrize(
    "make",
    [*MODELS.values(), *(partial(layer, case) for case in MIXERS)],
    ids=[*MODELS, *(case.name for case in MIXERS)],
)
def test_gradients_are_the_same_bit_for_bit(make: Making) -> None:
    """Every model and mixer, with dropout."""
    plain, again = step(make, forget=False), step(make, forget=True)
    assert len(plain) == len(again) > 8
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_the_peak_is_lower() -> None:
    """8 layers, 1024 tokens: 0.25 of the plain one's; as much in an evaluation, where nothing is to be kept."""
    model = DecoderLM(64, 1024, d_model=32, num_layers=8, mixer=partial(Attention, num_heads=2))
    tokens = torch.randint(64, (1, 1024))

    def train() -> None:
        model(tokens)[0].square().sum().backward()

    plain = peak(train)
    forget_activations(model)
    assert peak(train) <= 0.65 * plain


def test_only_training_computes_twice() -> None:
    model, run = decoder()
    forget_activations(model)
    calls = []
    for block in model.stack.blocks:
        block.register_forward_pre_hook(lambda *_: calls.append(1))
    run(model).sum().backward()
    assert len(calls) == 4
    with torch.no_grad():
        run(model)
    assert len(calls) == 6
    run(model.eval()).sum().backward()
    assert len(calls) == 8


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
def test_gradients_of_a_product_over_rows_of_any_length(
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


def test_gradients_of_a_model_by_hand() -> None:
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
    with pytest.raises(ValueError, match="RNNSeq2Seq has no Stack of blocks"):
        forget_activations(RNNSeq2Seq(11, 11, 8, d_model=8))
    with pytest.raises(ValueError, match="Linear has no Stack of blocks"):
        gradients_of(nn.Linear(1, 1), lambda: None)


def test_no_hook_is_left_behind() -> None:
    model = DecoderLM(5, LENGTH, d_model=8, num_layers=1)
    tokens = torch.randint(5, (2, LENGTH))
    gradients_of(model, lambda: model(tokens))
    assert not model.stack._forward_hooks and not model.stack._forward_pre_hooks
    with torch.no_grad():
        assert not model(tokens)[0].requires_grad
