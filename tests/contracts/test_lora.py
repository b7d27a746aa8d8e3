"""LoRA in every mixer: no layer is bypassed, however a mixer reads its weights."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from contracts import cases
from contracts.cases import MixerCase
from contracts.subjects import mixer_subject
from seqlab.config.lora import Lora
from seqlab.laws import LIMIT
from seqlab.nn.lora import LowRankLinear, adapt, merge


@pytest.mark.parametrize("mixer", cases.MIXERS, ids=lambda mixer: mixer.name)
def test_each_update_is_a_part_of_the_output(mixer: MixerCase) -> None:
    """At first none changes it, then it is that of weights added by hand, and still is once they are merged.

    The first is bit for bit, where what needs gradients, by which PyTorch chooses how it multiplies, is the same."""
    module, draw = mixer_subject(mixer, cases.POSITIONS[0])
    x, lora = draw(2, 7), Lora(rank=1, alpha=3.0, targets="")
    plain, names = deepcopy(module), {name for name, _ in module.named_parameters()}
    if not any(type(part) is nn.Linear for part in module.modules()):
        with pytest.raises(ValueError, match="accepted, in any block: none"):
            adapt(module, lora)
        return
    adapt(module, lora)
    updates = [weight for weight in module.parameters() if weight.requires_grad]
    assert torch.equal(module.requires_grad_(False)(x)[0], plain.requires_grad_(False)(x)[0])
    for weight in updates:
        weight.requires_grad_()
    for name, layer in module.named_modules():
        if isinstance(layer, LowRankLinear):
            nn.init.normal_(layer.weight_b)
            by_hand = plain.get_submodule(name).weight + 3 * torch.outer(layer.weight_b[:, 0], layer.weight_a[0])
            plain.get_submodule(name).weight.data = by_hand.detach()
    expected = plain(x)[0]
    torch.testing.assert_close(found := module(x)[0], expected, rtol=LIMIT, atol=LIMIT)
    found.square().sum().backward()
    for name, weight in module.named_parameters():
        assert name.endswith((".weight_a", ".weight_b")) == (weight.grad is not None and bool(weight.grad.any())), name
    merge(module)
    torch.testing.assert_close(module(x)[0], expected, rtol=LIMIT, atol=LIMIT)
    assert {name for name, _ in module.named_parameters()} == names
