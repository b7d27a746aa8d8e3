"""Defaults that change a model in silence."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from seqlab import attention, recurrence
from seqlab.mixer import Mixer
from seqlab.nn.feed_forward import GELU

BLOCKS = {**vars(attention), **vars(recurrence)}
MIXERS = [name for name, found in BLOCKS.items() if inspect.isclass(found) and issubclass(found, Mixer)]


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_is_the_first_layers_unless_told(name: str) -> None:
    assert inspect.signature(BLOCKS[name]).parameters["layer"].default == 0


def test_gelu_is_the_approximation_of_gpt2() -> None:
    layers = GELU(8).eval()
    first, second = (layer for layer in layers.modules() if isinstance(layer, nn.Linear))
    x = torch.randn(2, 8)
    assert torch.equal(layers(x), second(F.gelu(first(x), approximate="tanh")))
