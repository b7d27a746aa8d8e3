"""Subjects of the laws, and their findings.

B batch, T length, D d_model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqlab.mixer import Mixer, State, StateSpec

LIMIT = 1e-12
"""Maximum error in float64."""


class Subject(NamedTuple):
    """A module with `forward`, `step`, `init_state`, `state_spec` and `state_size`, and a way to draw its inputs.

    Attributes:
        module: a Mixer or a DecoderLM with non-degenerate weights.
        draw: maps (B, T) to an input: vectors (B, T, D) for a mixer, tokens (B, T) for a model.
    """

    module: Any
    draw: Callable[[int, int], Tensor]

    @property
    def first(self) -> int:
        """Minimum number of tokens in the first call, as `Mixer.first_call`."""
        first: int = self.module.first_call
        return first


class Found(NamedTuple):
    """Error of one comparison, computed by `error`."""

    what: str
    error: float


Law = Callable[[Subject, int], Iterator[Found]]


class WithMemory(nn.Module):
    """Wrapper that supplies a mixer with a memory, the same in every row, so that it is called like any other mixer.

    Attributes:
        memory: (S, D), partly padding.
        memory_mask: (S,) bool, True = a real token.
    """

    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.first_call = mixer.first_call
        self.memory = nn.Parameter(torch.randn(6, mixer.d_model, dtype=torch.float64))
        self.memory_mask = torch.tensor([False, True, True, True, True, False])

    def given(self, batch_size: int) -> dict[str, Tensor]:
        rows = {"memory": self.memory, "memory_mask": self.memory_mask}
        return {name: row.expand(batch_size, *row.shape) for name, row in rows.items()}

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        found: tuple[Tensor, State] = self.mixer(
            x, self.init_state(len(x)) if state is None else state, pad_mask=pad_mask
        )
        return found

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        return self.mixer.step(x_t, state)

    def init_state(self, batch_size: int) -> State:
        return self.mixer.init_state(batch_size, **self.given(batch_size))

    def state_spec(self) -> StateSpec:
        return self.mixer.state_spec()

    def state_size(self, seq_len: int) -> int:
        return self.mixer.state_size(seq_len)


def error(actual: Tensor, expected: Tensor) -> float:
    """Maximum absolute difference, divided by the larger of 1 and the maximum absolute expected value."""
    if actual.shape != expected.shape:
        raise ValueError(f"the shape is {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    if not expected.numel():
        return 0.0
    actual, expected = actual.detach().double(), expected.detach().double()
    return float((actual - expected).abs().max() / expected.abs().max().clamp(min=1.0))


def off(actual: Tensor, expected: Tensor, what: str) -> Found:
    return Found(what, error(actual, expected))


def must(holds: bool, what: str) -> Found:
    """Exact finding: the error is 0 if the condition holds, otherwise infinite."""
    return Found(what, 0.0 if holds else math.inf)
