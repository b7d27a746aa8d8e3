"""Defaults that change a model in silence."""

from __future__ import annotations

import inspect
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from seqlab import attention, recurrence
from seqlab.cli import VERBS
from seqlab.mixer import Mixer
from seqlab.nn.feed_forward import GELU
from seqlab_data.annotated import AnnotatedDataModule
from seqlab_data.images import ImageDataModule
from seqlab_data.parallel import ParallelTextDataModule
from seqlab_data.text import TextDataModule

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


def test_an_option_has_the_default_that_its_help_states() -> None:
    options = [
        (verb.name, *argument) for verb in VERBS for argument in verb.arguments if "default" in argument.settings
    ]
    stated = {}
    for verb, names, settings in options:
        if found := re.search(r"default: (\d*\.?\d+)(?!\w|\.\d)", settings.get("help") or ""):
            stated[verb, names] = float(found[1])
            assert float(found[1]) == settings["default"], (verb, names)
    assert ("submit", ("--nodes",)) in stated


@pytest.mark.parametrize(
    ("module", "option", "default"),
    [
        (ParallelTextDataModule, "val_share", 0.05),
        (AnnotatedDataModule, "split", (0.8, 0.1, 0.1)),
        (ImageDataModule, "split", (0.8, 0.1, 0.1)),
        (TextDataModule, "split", (0.9, 0.05, 0.05)),
    ],
)
def test_splits_are_in_these_shares_unless_told(module: type, option: str, default: object) -> None:
    assert inspect.signature(module).parameters[option].default == default
