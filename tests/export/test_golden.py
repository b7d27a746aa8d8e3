"""How PyTorch's own error is measured."""

from __future__ import annotations

import torch

from export.toys import toy
from seqlab.attention import Attention, Retention
from seqlab.mixer import Mixer
from seqlab.positions import Sinusoidal
from seqlab_export.golden import OtherOrder


def test_other_orders_of_summation_are_the_same_model_but_for_rounding() -> None:
    tokens = torch.randint(7, (3, 11))
    mixers: tuple[type[Mixer], ...] = (Attention, Retention)
    for mixer in mixers:
        model = toy(mixer, Sinusoidal).eval()
        for dtype in (torch.float32, torch.float64):
            model = model.to(dtype)
            with torch.no_grad():
                plain, _ = model(tokens)
                with OtherOrder(0):
                    once, _ = model(tokens)
                with OtherOrder(0):
                    again, _ = model(tokens)
                with OtherOrder(1):
                    other, _ = model(tokens)
            assert torch.equal(once, again)
            for a, b in ((plain, once), (plain, other), (once, other)):
                assert 0 < (a - b).abs().max() < 100 * torch.finfo(dtype).eps * plain.abs().max()
