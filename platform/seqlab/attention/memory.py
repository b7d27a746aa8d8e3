"""Common base of mixers that attend to an encoder's memory, which they keep in their state.

B batch, T query length, S memory length, D d_model.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from seqlab.mixer import Mixer, State, StateEntry, StateSpec, check_state
from seqlab.positions.base import PositionalEncoding


class MemoryMixer(Mixer):
    """Mixer whose state begins with constants: `memory_k` and `memory_v`, the outputs of `read`, and `memory_mask
    (B, S)`, True = a real token. The entries that change from step to step follow.

    The memory is read once, by `init_state`, so `forward` requires a state.
    Attention weights and contexts are 0 in a row whose memory has no real token.
    """

    needs_memory = True

    @abstractmethod
    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, (B, ..., S, K) each, of a memory (B, S, D)."""

    def read_dims(self) -> tuple[int | str, ...]:
        """Dimensions of `read`'s outputs after the batch."""
        return "M", self.d_model

    def carried(self) -> StateSpec:
        """State entries other than the memory."""
        return ()

    def state_spec(self) -> StateSpec:
        read = [StateEntry(name, self.read_dims(), kind="source") for name in ("memory_k", "memory_v")]
        return *read, StateEntry("memory_mask", ("M",), torch.bool, kind="source"), *self.carried()

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        """Initial state for a memory.

        Args:
            memory: (B, S, D).
            memory_mask: (B, S) bool, True = a real token; None = all are real.

        Raises:
            ValueError: the memory is missing, or it or its mask has the wrong shape or dtype.
        """
        name = type(self).__name__
        if memory is None:
            raise ValueError(
                f"{name} attends to an encoder's memory, but none was given; call init_state(batch_size, memory), or "
                "use it in a model with an encoder"
            )
        if memory.dim() != 3 or memory.shape[0] != batch_size or memory.shape[2] != self.d_model:
            raise ValueError(
                f"the memory of {name} must be (batch, source length, d_model) = ({batch_size}, S, {self.d_model}), "
                f"got {tuple(memory.shape)}"
            )
        if memory_mask is None:
            memory_mask = memory.new_ones(memory.shape[:2], dtype=torch.bool)
        elif memory_mask.shape != memory.shape[:2] or memory_mask.dtype != torch.bool:
            raise ValueError(
                f"the memory_mask of {name} must be bool of shape {tuple(memory.shape[:2])}, like its memory, got "
                f"{memory_mask.dtype} of shape {tuple(memory_mask.shape)}"
            )
        keys, values = self.read(memory)
        return {"memory_k": keys, "memory_v": values, "memory_mask": memory_mask} | super().init_state(batch_size)

    def attach_positions(self, positions: PositionalEncoding) -> None:
        """Raises ValueError unless the encoding acts on the embeddings: queries and keys are of different sequences."""
        if positions.acts_on != "embeddings":
            raise ValueError(
                f"{type(positions).__name__} acts on {positions.acts_on} by distance, but {type(self).__name__} "
                "attends to another sequence; use positions that act on the embeddings (NoPositions, Sinusoidal, "
                "Learned)"
            )

    def begin(self, x: Tensor, state: State | None) -> State:
        """Checks the given state against a batch x (B, ...) and returns it."""
        if state is None:
            return self.init_state(x.shape[0])
        check_state(state, self.state_spec(), x.shape[0], type(self).__name__)
        return state


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension where `mask` (broadcastable) is True and 0 elsewhere; fully masked rows are 0."""
    filled = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return filled.softmax(dim=-1).masked_fill(~mask, 0.0)
