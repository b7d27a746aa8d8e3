"""Subjects of the laws: a bare mixer, or a decoder around one, with random inputs and telling weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from contracts.cases import D_MODEL, MAX_SEQ_LEN, MixerCase, PositionCase
from seqlab.attention import LinearAttention
from seqlab.laws import LIMIT, Law, Subject, WithMemory
from seqlab.models import DecoderLM

VOCAB_SIZE = 11


def randomized(module: nn.Module) -> Any:
    """`module` in float64 with weights that matter: attention far from uniform, no bias at 0, no normaliser near it."""
    module.double().eval()
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[-1]))
        else:
            nn.init.normal_(parameter, std=0.5)
    for mixer in module.modules():
        if isinstance(mixer, LinearAttention) and mixer.feature_map == "relu":
            # Few features vanish: a sum of next to none, by which it divides, would be hardly more than its rounding.
            for projection in (mixer.q_proj, mixer.k_proj):
                nn.init.normal_(projection.bias, mean=2.0, std=0.5)
    return module


def check_laws(laws: Iterable[Law], subject: Subject, lengths: Iterable[int]) -> None:
    """Fails with every law that is broken, at every length."""
    broken = [
        f"{law.__name__}: {what} is off by {error:.1e} at length {length}, the limit is {LIMIT:.0e}"
        for law in laws
        for length in lengths
        for what, error in law(subject, length)
        if not error <= LIMIT
    ]
    assert not broken, "\n".join(broken)


def mixer_subject(mixer: MixerCase, positions: PositionCase) -> Subject:
    """The bare mixer with the encoding attached as a model attaches it."""
    module = mixer.factory(D_MODEL, 0)
    encoding = positions.factory(D_MODEL, MAX_SEQ_LEN)
    module.attach_positions(encoding)
    randomized(encoding), randomized(module)
    whole = WithMemory(module) if mixer.memory else module
    return Subject(whole, lambda batch, length: torch.randn(batch, length, D_MODEL, dtype=torch.float64))


def decoder_subject(mixer: Any, positions: Any, **options: Any) -> Subject:
    """A small decoder over factories of a mixer (or a list of them) and an encoding."""
    model = DecoderLM(VOCAB_SIZE, MAX_SEQ_LEN, d_model=D_MODEL, mixer=mixer, positions=positions, **options)
    return Subject(randomized(model), lambda batch, length: torch.randint(VOCAB_SIZE, (batch, length)))
