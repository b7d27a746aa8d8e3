"""The Mixer contract: two forms, one state.

Everything that mixes information over time (attention, an LSTM, a linear recurrence) is a `Mixer`. It has a
parallel form (`forward`) and a sequential one (`step`), and both carry the same flat `State`. Decoding, export and
the runtimes ride on nothing else. The laws that every mixer keeps are `seqlab.laws`.

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
"""Named tensors, batch first, in a fixed order, never changed in place."""


class Entry(NamedTuple):
    """One entry of a state, declared.

    Attributes:
        dims: those after the batch. Each is a number, or the name of what it is as long as: "S" what was read so far,
            pads among it; "C" the capacity of the mixer; "M" an encoder's memory.
        dtype: None = that of the mixer's weights.
        initial: the value of every element before the first token.
        kind: a "counter" counts tokens: all layers have the same one, which is stored once, and `state_size` leaves it
            out. What is "growing" holds something of each token; a "window" of the last few; what is "fixed" sums up
            the past. The "source" is what was read of an encoder's memory, which no token changes.
    """

    name: str
    dims: tuple[int | str, ...]
    dtype: torch.dtype | None = None
    initial: float = 0.0
    kind: Literal["counter", "growing", "window", "fixed", "source"] = "fixed"


Spec = tuple[Entry, ...]
"""Entries of the state of a mixer or a model, in order."""

Cuts = dict[str, Literal["columns", "rows", "heads", "vocabulary"]]
"""Tensor-parallel split of a module's layers, by name (Shoeybi et al. 2019, "Megatron-LM", section 3). A linear layer
is divided by its outputs ("columns"), or by its inputs, and the ranks' results are summed ("rows"). A norm of each
rank's heads, (B, H, T, K), has one gain for all ("heads"). An embedding, an output layer or its bias is divided by
tokens ("vocabulary")."""

POSITION = Entry("position", (), torch.int64, kind="counter")
"""Number of real tokens read."""


class Mixer(nn.Module, ABC):
    """Mixes a sequence over time.

    A subclass is constructed as `Mixer(d_model, layer, *, options)`; the model calls the factory once a layer.

    Attributes:
        d_model: width of the input and of the output.
        causal: whether output t depends on inputs up to t only. Only a causal mixer has a state and `step`.
        needs_memory: whether it attends to an encoder's memory, which `init_state` must be given.
        first_call: how many real tokens the first call must hold, if there are as many; a prefix sees itself whole.
        capacity: for how many tokens what grows has room from the start; None = it grows. `fix_capacity` sets it.
        cuts: how ranks share it; what says nothing of it every rank computes whole.
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
    def state_spec(self) -> Spec:
        """Entries of the state; none where the mixer is not causal."""

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        """The state before the first token, as it is declared.

        Args:
            memory: (B, S, D) encoder output, for mixers that attend to one.
            memory_mask: (B, S) bool, True = a real token; None = all are.

        Raises:
            ValueError: the mixer is not causal, or the memory is missing or does not fit.
        """
        self.check_causal()
        like, sizes = next(self.parameters(), torch.empty(0)), {"S": 0, "C": self.capacity or 0}
        state = {}
        for name, dims, dtype, initial, kind in self.state_spec():
            shape = [batch_size, *(sizes.get(dim, 0) if isinstance(dim, str) else dim for dim in dims)]
            if kind != "source":
                # Not like a weight in more than this: one that ranks share makes tensors that they share.
                zeros = torch.zeros(shape, dtype=dtype or like.dtype, device=like.device)
                state[name] = zeros + initial if initial else zeros
        return state

    def check_causal(self) -> None:
        """Raises ValueError where there is no state and no `step`."""
        if not self.causal:
            raise ValueError(f"{type(self).__name__} is not causal as it is set: it has no state and no step")

    def state_size(self, seq_len: int) -> int:
        """Number of values in one sequence's state after `seq_len` tokens, without an encoder's memory."""
        return size_of(self.state_spec(), seq_len)

    def cut(self, ranks: int) -> None:
        """Prepares the mixer for its share on one of so many ranks, as `cuts` says: heads are counted anew.

        Raises:
            ValueError: they cannot share it evenly, or something in it that heads have is not in the plan.
        """

    def flops(self, new: int, seen: int) -> int | None:
        """FLOPs of one sequence, two for each multiply-add, besides those of the mixer's linear, convolutional and
        recurrent layers. Elementwise work is not counted, as by PyTorch's `FlopCounterMode`: norms, activations, gates,
        rotations, scans, products with one vector.

        Args:
            new: tokens read at once; 1 = a decode step.
            seen: tokens read by then, including the new ones; an encoder's memory is taken to be as long.

        Returns:
            None = not declared: `seqlab.budgets` measures it.
        """
        return None

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


def fix_capacity(model: nn.Module, capacity: int | None) -> None:
    """Has a model allocate growing state entries for so many tokens up front, from now on; None = they grow."""
    for module in model.modules():
        if isinstance(module, Mixer):
            module.capacity = capacity


def size_of(spec: Spec, seq_len: int) -> int:
    """Number of values in one sequence's state after `seq_len` tokens, without counters and the source."""
    own = [entry.dims for entry in spec if entry.kind not in ("counter", "source")]
    return sum(prod(seq_len if isinstance(dim, str) else dim for dim in dims) for dims in own)


def check_state(state: State, spec: Spec, batch_size: int, owner: str) -> None:
    """Raises ValueError where a state is another model's or another batch's.

    Args:
        batch_size: of the input that is to continue from it.
        owner: whose `spec` it is, for the message.
    """
    if list(state) != [entry.name for entry in spec]:
        raise ValueError(f"the state has entries {list(state)}, that of {owner} has {[entry.name for entry in spec]}")
    lengths: dict[str, int] = {}  # of what has a name; each name has one length
    for name, dims, *_ in spec:
        shape = state[name].shape
        fits = len(shape) == len(dims) + 1 and shape[0] == batch_size
        for size, dim in zip(shape[1:], dims, strict=False):
            fits = fits and size == (lengths.setdefault(dim, size) if isinstance(dim, str) else dim)
        if not fits:
            known = [lengths.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
            raise ValueError(
                f"state entry {name} has shape {tuple(shape)}, {owner} and this batch of {batch_size} need "
                f"({', '.join(map(str, [batch_size, *known]))})"
            )


def check_declared(state: State, spec: Spec, num_read: int, dtype: torch.dtype) -> None:
    """Raises ValueError where the state after `num_read` tokens is not as `spec` declares, for weights in `dtype`."""
    names = [entry.name for entry in spec]
    if list(state) != names:
        raise ValueError(f"state_spec declares the entries {names}, and the state has {list(state)}")
    for entry in spec:
        found, wanted = state[entry.name], entry.dtype or dtype
        # How long a memory or a capacity is only the state says.
        sizes = [
            size if dim in ("M", "C") else num_read if dim == "S" else dim
            for dim, size in zip(entry.dims, found.shape[1:], strict=False)
        ]
        if (sizes, len(sizes), wanted) != ([*found.shape[1:]], len(entry.dims), found.dtype):
            raise ValueError(
                f"state entry {entry.name} is declared by state_spec as ({', '.join(map(str, ('B', *entry.dims)))}) in "
                f"{wanted}, and is {tuple(found.shape)} in {found.dtype} after {num_read} tokens"
            )
