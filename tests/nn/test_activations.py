"""Activations that are recomputed in the backward pass: the same gradients, less memory."""

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
from seqlab.nn import Block, Stack
from seqlab.nn.stack import forget_activations
from seqlab.positions import NoPositions

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


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="RNNSeq2Seq has no stack of blocks"):
        forget_activations(RNNSeq2Seq(11, 11, 8, d_model=8))
