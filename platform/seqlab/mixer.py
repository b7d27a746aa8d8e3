"""The Mixer contract: two forms, one state.

Everything that mixes information over time (attention, an LSTM, a linear recurrence) is a `Mixer`. It has a
parallel form (`forward`) and a sequential one (`step`), and both carry the same flat `State`. Decoding, export and
the runtimes rely on nothing else. `seqlab.laws` checks the invariants that every mixer must satisfy.

B batch, T query length, S key length, D d_model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from seqlab.positions import PositionalEncoding

State = dict[str, Tensor]
"""Named tensors in a fixed order, batch first, never modified in place."""


class StateEntry(NamedTuple):
    """Declaration of one state entry.

    Attributes:
        dims: dimensions after the batch. Each is a number or a symbolic length: "S", tokens read so far, padding
            included; "C", the mixer's capacity; "M", the length of an encoder's memory.
        dtype: dtype of the entry; None = the dtype of the mixer's weights.
        initial: value of every element before the first token.
        kind: "counter" counts tokens; all layers share it, it is stored once and `state_size` excludes it. "growing"
            holds data of every token, "revised" the same where later tokens change it, "window" of the last few
            tokens, and "fixed" a summary of the past. "source" is derived from an encoder's memory and does not change
            from token to token.
    """

    name: str
    dims: tuple[int | str, ...]
    dtype: torch.dtype | None = None
    initial: float = 0.0
    kind: Literal["counter", "growing", "revised", "window", "fixed", "source"] = "fixed"


Entry = StateEntry
StateSpec = tuple[StateEntry, ...]
"""State entries of a mixer or a model, in order."""

Cuts = dict[str, Literal["columns", "rows", "heads", "vocabulary"]]
"""Tensor-parallel plan of a module's layers, by name (Shoeybi et al. 2019, "Megatron-LM", section 3). A linear layer is
sharded by its outputs ("columns"), or by its inputs with the ranks' results summed ("rows"). A norm over heads,
(B, H, T, K), runs on each rank's own heads with one gain shared by all ("heads"). An embedding, an output layer or its
bias is sharded by tokens ("vocabulary")."""

POSITION = StateEntry("position", (), torch.int64, kind="counter")
"""Number of real tokens read so far."""


class Mixer(nn.Module, ABC):
    """Mixes a sequence over time.

    A subclass is constructed as `Mixer(d_model, layer, *, options)`; the model calls the factory once per layer.

    Attributes:
        d_model: width of the input and of the output.
        causal: whether output t depends on inputs up to t only. Only a causal mixer has a state and `step`.
        needs_memory: whether it attends to an encoder's memory, which must then be passed to `init_state`.
        first_call: minimum number of real tokens in the first (prefill) call; above 1 for prefix-LM masks. A shorter
            sequence must fit into that call entirely.
        capacity: number of tokens preallocated for growing state entries; None = they grow. Set by `fix_capacity`.
        cuts: tensor-parallel plan; submodules that are not listed are replicated.
    """

    causal: bool = True
    needs_memory: bool = False
    first_call: int = 1
    capacity: int | None = None
    cuts: ClassVar[Cuts] = {}

    def __init__(self, d_model: int, layer: int = 0) -> None:
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model must be at least 1, got {d_model}")
        self.d_model = d_model
        self.layer = layer

    @abstractmethod
    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """Processes all positions at once.

        Args:
            x: (B, T, D).
            state: state returned by an earlier call; None starts a new sequence.
            pad_mask: (B, T) bool, True = a real token; padding is leading or trailing.

        Returns:
            y (B, T, D) and the state to continue from. Padding affects neither the state nor y at real positions.
        """

    @abstractmethod
    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step: maps x_t (B, D) and a state to y_t (B, D) and the next state, without recomputation."""

    @abstractmethod
    def state_spec(self) -> StateSpec:
        """State entries; empty if the mixer is not causal."""

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        """Initial state, as declared by `state_spec`.

        Args:
            memory: (B, S, D) encoder output, for mixers that attend to one.
            memory_mask: (B, S) bool, True = a real token; None = all are real.

        Raises:
            ValueError: the mixer is not causal, or the memory is missing or has the wrong shape.
        """
        self.check_causal()
        like, sizes = next(self.parameters(), torch.empty(0)), {"S": 0, "C": self.capacity or 0}
        state = {}
        for name, dims, dtype, initial, kind in self.state_spec():
            shape = [batch_size, *(sizes.get(dim, 0) if isinstance(dim, str) else dim for dim in dims)]
            if kind != "source":
                # Takes only dtype and device from the weight: `new_zeros` of a sharded weight would be a DTensor.
                zeros = torch.zeros(shape, dtype=dtype or like.dtype, device=like.device)
                state[name] = zeros + initial if initial else zeros
        return state

    def check_causal(self) -> None:
        """Raises ValueError if the mixer is not causal and so has no state and no `step`."""
        if not self.causal:
            raise ValueError(f"this {type(self).__name__} is not causal, so it has no state and no step")

    def state_size(self, seq_len: int) -> int:
        """Number of values in one sequence's state after `seq_len` tokens, excluding an encoder's memory."""
        return size_of(self.state_spec(), seq_len)

    def cut(self, ranks: int) -> None:
        """Prepares the mixer for its shard on one of `ranks` ranks under the plan `cuts`, e.g. updates head counts.

        Raises:
            ValueError: the ranks do not divide it evenly, or a per-head parameter is missing from the plan.
        """

    def flops(self, new: int, seen: int) -> int | None:
        """FLOPs of one sequence, two per multiply-add, excluding the mixer's linear, convolutional and recurrent
        layers. Like PyTorch's `FlopCounterMode`, it does not count elementwise work: norms, activations, gates,
        rotations, scans and products with a single vector.

        Args:
            new: number of tokens in this call; 1 = a decode step.
            seen: total number of tokens read, including the new ones; an encoder's memory is assumed to be as long.

        Returns:
            The FLOPs; None = not declared, and `seqlab.budgets` measures them instead.
        """
        return None

    def attach_positions(self, positions: PositionalEncoding) -> None:
        """Attaches the model's positional encoding, or rejects it.

        A mixer without queries and keys accepts only encodings that act on the embeddings.

        Raises:
            ValueError: the encoding acts on something this mixer does not have.
        """
        if positions.acts_on != "embeddings":
            raise ValueError(
                f"{type(positions).__name__} acts on {positions.acts_on}, which {type(self).__name__} does not "
                "have; give this model positions that act on the embeddings (NoPositions, Sinusoidal, Learned) "
                "or an attention mixer"
            )


def fix_capacity(model: nn.Module, capacity: int | None) -> None:
    """Makes a model preallocate its growing state entries for `capacity` tokens from now on; None = they grow."""
    for module in model.modules():
        if isinstance(module, Mixer):
            module.capacity = capacity


def size_of(spec: StateSpec, seq_len: int) -> int:
    """Number of values in one sequence's state after `seq_len` tokens, excluding counters and source entries."""
    own = [entry.dims for entry in spec if entry.kind not in ("counter", "source")]
    return sum(prod(seq_len if isinstance(dim, str) else dim for dim in dims) for dims in own)


def check_state(state: State, spec: StateSpec, batch_size: int, owner: str) -> None:
    """Raises ValueError if a state belongs to another model or has another batch size.

    Args:
        batch_size: batch size of the input that continues from the state.
        owner: name of the mixer or model that declares `spec`, for the error message.
    """
    if list(state) != [entry.name for entry in spec]:
        raise ValueError(f"the state has entries {list(state)}, but {owner} needs {[entry.name for entry in spec]}")
    lengths: dict[str, int] = {}  # lengths of symbolic dimensions; each symbol has one length
    for name, dims, *_ in spec:
        shape = state[name].shape
        fits = len(shape) == len(dims) + 1 and shape[0] == batch_size
        for size, dim in zip(shape[1:], dims, strict=False):
            fits = fits and size == (lengths.setdefault(dim, size) if isinstance(dim, str) else dim)
        if not fits:
            known = [lengths.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
            raise ValueError(
                f"state entry {name} has shape {tuple(shape)}, but {owner} and a batch of {batch_size} need "
                f"({', '.join(map(str, [batch_size, *known]))})"
            )


def check_declared(state: State, spec: StateSpec, num_read: int, dtype: torch.dtype) -> None:
    """Raises ValueError if the state after `num_read` tokens does not match `spec`, for weights in `dtype`."""
    names = [entry.name for entry in spec]
    if list(state) != names:
        raise ValueError(f"state_spec declares the entries {names}, but the state has {list(state)}")
    for entry in spec:
        found, wanted = state[entry.name], entry.dtype or dtype
        # The lengths of a memory and of a capacity are known only from the state itself.
        sizes = [
            size if dim in ("M", "C") else num_read if dim == "S" else dim
            for dim, size in zip(entry.dims, found.shape[1:], strict=False)
        ]
        if (sizes, len(sizes), wanted) != ([*found.shape[1:]], len(entry.dims), found.dtype):
            raise ValueError(
                f"state entry {entry.name} is declared by state_spec as ({', '.join(map(str, ('B', *entry.dims)))}) in "
                f"{wanted}, but is {tuple(found.shape)} in {found.dtype} after {num_read} tokens"
            )
