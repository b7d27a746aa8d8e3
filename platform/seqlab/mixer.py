"""The Mixer contract: two forms, one state.

Everything that mixes information over time (attention, an LSTM, a linear recurrence) is a `Mixer`. It has a
parallel form (`forward`) and a sequential one (`step`), and both carry the same flat `State`. Decoding, export and
the runtimes ride on nothing else. The laws that every mixer keeps are in tests/contracts/.

B batch, T query length, S key length, D d_model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from seqlab.positions import PositionalEncoding

State = dict[str, Tensor]
"""Named tensors, batch first, in a fixed order, never changed in place."""

SHARED_STATE = ("position", "key_mask")
"""Entries that count tokens. They are the same in every layer, so a stack stores them once, unprefixed."""


Layout = dict[str, tuple[int | None, ...]]
"""The names of a state's entries and their dimensions after the batch; None = one that grows."""


class Mixer(nn.Module, ABC):
    """Mixes a sequence over time.

    A subclass is constructed as `Mixer(d_model, layer, *, options)`; the model calls the factory once a layer.

    Attributes:
        d_model: width of the input and of the output.
        causal: whether output t depends on inputs up to t only. Only a causal mixer has a state and `step`.
        needs_memory: whether it attends to an encoder's memory, which `init_state` must be given.
        first_call: how many real tokens the first call must hold, if there are as many; a prefix sees itself whole.
    """

    causal: bool = True
    needs_memory: bool = False
    first_call: int = 1

    def __init__(self, d_model: int, layer: int = 0) -> None:
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model must be at least 1, got {d_model}")
        self.d_model = d_model
        self.layer = layer

    @abstractmethod
    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """All positions at once.

        Args:
            x: (B, T, D).
            state: where an earlier call ended; None starts afresh.
            pad_mask: (B, T) bool, True = a real token; padding is leading or trailing.

        Returns:
            y (B, T, D) and the state to continue from. Neither depends on the padding at real positions.
        """

    @abstractmethod
    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One position: x_t (B, D) and a state give y_t (B, D) and the next state, with no recomputation."""

    @abstractmethod
    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        """The state before the first token."""

    @abstractmethod
    def state_size(self, seq_len: int) -> int:
        """How many numbers one sequence must remember after `seq_len` tokens, besides an encoder's memory."""

    def attach_positions(self, positions: PositionalEncoding) -> None:
        """Takes the model's positional encoding, or refuses it.

        A mixer without queries and keys accepts only what acts on the embeddings.

        Raises:
            ValueError: the encoding acts on something this mixer does not have.
        """
        if positions.acts_on != "embeddings":
            raise ValueError(
                f"{type(positions).__name__} acts on {positions.acts_on}, which {type(self).__name__} does not "
                "have; give this model positions that act on the embeddings (NoPositions, Sinusoidal, Learned) "
                "or an attention mixer"
            )


def layout_of(initial: State) -> Layout:
    """The layout of a mixer's or a model's states, read off its initial one, in which what grows is 0."""
    return {name: tuple(size or None for size in entry.shape[1:]) for name, entry in initial.items()}


def check_state(state: State, layout: Layout, batch_size: int, owner: str) -> None:
    """Raises ValueError where a state is another model's or another batch's.

    Args:
        batch_size: of the input that is to continue from it.
        owner: whose layout it is, for the message.
    """
    if "key_mask" not in state:  # nor has a cache of fixed capacity
        layout = {name: dims for name, dims in layout.items() if name != "key_mask"}
    if list(state) != list(layout):
        raise ValueError(f"the state has entries {list(state)}, that of {owner} has {list(layout)}")
    lengths: dict[bool, int] = {}
    for name, dims in layout.items():
        shape = state[name].shape
        fits = len(shape) == len(dims) + 1 and shape[0] == batch_size
        for size, dim in zip(shape[1:], dims, strict=False):
            # What grows has one length, and an encoder's memory another.
            fits = fits and size == (lengths.setdefault("memory_" in name, size) if dim is None else dim)
        if not fits:
            known = [lengths.get("memory_" in name, "S") if dim is None else dim for dim in dims]
            raise ValueError(
                f"state entry {name} has shape {tuple(shape)}, {owner} and this batch of {batch_size} need "
                f"({', '.join(map(str, [batch_size, *known]))})"
            )


def count_real(pad_mask: Tensor | None, x: Tensor) -> Tensor:
    """(B,) int64: how many tokens of x (B, T, ...) are real."""
    if pad_mask is None:
        return torch.full((x.shape[0],), x.shape[1], dtype=torch.int64, device=x.device)
    return pad_mask.sum(dim=1)


def real_positions(start: Tensor | None, pad_mask: Tensor | None, x: Tensor) -> Tensor:
    """The position of each token of x (B, T, ...), counting real tokens only, from `start` (B,) or from 0.

    A pad has the position of the real token before it, or of the first one.

    Returns:
        (B, T) int64, or (1, T) where every row is the same.
    """
    if pad_mask is None:
        offsets = torch.arange(x.shape[1], device=x.device)[None, :]
    else:
        offsets = (pad_mask.cumsum(dim=1) - 1).clamp(min=0)
    return offsets if start is None else start[:, None] + offsets
