"""What is held to the laws: a bare mixer, or a decoder around one, with random inputs and telling weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from contracts.cases import D_MODEL, MAX_SEQ_LEN, MixerCase, PositionCase
from seqlab.attention import LinearAttention
from seqlab.mixer import Mixer, Spec, State
from seqlab.models import DecoderLM

VOCAB_SIZE = 11


class Subject(NamedTuple):
    """A module with `forward`, `step`, `init_state`, `state_spec` and `state_size`, and a way to draw its inputs.

    Attributes:
        module: a Mixer or a DecoderLM.
        draw: (B, T) to an input: vectors (B, T, D) for a mixer, tokens (B, T) for a model.
    """

    module: Any
    draw: Callable[[int, int], Tensor]

    @property
    def first(self) -> int:
        """Tokens that the first call must hold, if there are as many."""
        first: int = self.module.first_call
        return first


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


class WithMemory(nn.Module):
    """A mixer that is given a memory, the same one in every row, and so is called like any other.

    Attributes:
        memory: (S, D), some of it padding.
        memory_mask: (S,).
    """

    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.first_call = mixer.first_call
        self.memory = nn.Parameter(torch.randn(6, D_MODEL, dtype=torch.float64))
        self.memory_mask = torch.tensor([False, True, True, True, True, False])

    def given(self, batch_size: int) -> dict[str, Tensor]:
        rows = {"memory": self.memory, "memory_mask": self.memory_mask}
        return {name: row.expand(batch_size, *row.shape) for name, row in rows.items()}

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        return self.mixer(x, self.init_state(len(x)) if state is None else state, pad_mask=pad_mask)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return self.mixer.step(x_t, state)

    def init_state(self, batch_size: int) -> State:
        return self.mixer.init_state(batch_size, **self.given(batch_size))

    def state_spec(self) -> Spec:
        return self.mixer.state_spec()

    def state_size(self, seq_len: int) -> int:
        return self.mixer.state_size(seq_len)


def mixer_subject(mixer: MixerCase, positions: PositionCase) -> Subject:
    """The bare mixer with the encoding attached as a model attaches it."""
    module = mixer.factory(D_MODEL, 0)
    encoding = positions.factory(D_MODEL, MAX_SEQ_LEN)
    module.attach_positions(encoding)
    randomized(encoding)
    module = WithMemory(randomized(module)) if mixer.memory else randomized(module)
    return Subject(module, lambda batch, length: torch.randn(batch, length, D_MODEL, dtype=torch.float64))


def decoder_subject(mixer: Any, positions: Any, **options: Any) -> Subject:
    """A small decoder over factories of a mixer (or a list of them) and an encoding."""
    model = DecoderLM(VOCAB_SIZE, MAX_SEQ_LEN, d_model=D_MODEL, mixer=mixer, positions=positions, **options)
    return Subject(randomized(model), lambda batch, length: torch.randint(VOCAB_SIZE, (batch, length)))


def causal_subject(mixer: MixerCase, positions: PositionCase) -> Subject:
    """The bare mixer; where the encoding acts on embeddings, which a mixer never sees, a decoder of one layer."""
    if positions.acts_on == "embeddings" and positions.name != "none":
        return decoder_subject(mixer.factory, positions.factory, num_layers=1)
    return mixer_subject(mixer, positions)
