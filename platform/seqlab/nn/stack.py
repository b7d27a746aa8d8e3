"""A stack of blocks with one flat joint state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from seqlab.mixer import Mixer, State, StateEntry, StateSpec, size_of
from seqlab.nn.block import Block
from seqlab.nn.packing import Documents

if TYPE_CHECKING:
    from seqlab.positions import PositionalEncoding

MixerFactory = Callable[[int, int], Mixer]


def layers_of(mixer: MixerFactory | list[MixerFactory], num_layers: int) -> Iterator[MixerFactory]:
    """Mixer factory of each layer; a list is repeated over the layers (a hybrid stack).

    Raises:
        ValueError: the list is empty or longer than the stack, or num_layers is below 1.
    """
    pattern = mixer if isinstance(mixer, list) else [mixer]
    if num_layers < 1 or not 1 <= len(pattern) <= num_layers:
        raise ValueError(
            f"the number of mixers must be from 1 to num_layers, got {len(pattern)} for num_layers {num_layers}"
        )
    return islice(cycle(pattern), num_layers)


class Stack(nn.Module):
    """Stack with one block per mixer. Layer k's state entries are prefixed `k_`; token counters are stored once.

    Args:
        mixers: one mixer per layer.
        positions: positional encoding, attached to every mixer except cross-attention layers beside self-mixing ones.
        block: factory of the residual block, called with d_model and the layer's mixer.
        causal: whether every mixer must be causal.

    Attributes:
        keeps_activations: whether a training step keeps the blocks' intermediate outputs. If not, the backward pass
            recomputes them block by block with the same random numbers (activation checkpointing; Chen et al. 2016,
            "Training deep nets with sublinear memory cost").

    Raises:
        ValueError: a mixer is not causal in a causal stack, or is incompatible with the positions.
    """

    keeps_activations = True

    def __init__(
        self,
        mixers: Sequence[Mixer],
        *,
        positions: PositionalEncoding,
        block: Callable[[int, Mixer], Block],
        causal: bool,
    ) -> None:
        super().__init__()
        for k, layer in enumerate(mixers):
            if causal and not layer.causal:
                raise ValueError(
                    f"layer {k} is a non-causal {type(layer).__name__}, but this model is causal; use a causal mixer "
                    "or pattern"
                )
            # Cross-attention gets no positions if other layers mix the sequence itself.
            if not layer.needs_memory or all(other.needs_memory for other in mixers):
                layer.attach_positions(positions)
        blocks = [block(layer.d_model, layer) for layer in mixers]
        self.blocks = nn.ModuleList(blocks)
        self.norm = blocks[-1].final_norm()
        self.first_call = max(layer.first_call for layer in mixers)

    def forward(
        self,
        x: Tensor,
        state: State | None = None,
        *,
        pad_mask: Tensor | None = None,
        documents: Documents | None = None,
    ) -> tuple[Tensor, State]:
        """Maps x (B, T, D) to (B, T, D) and the new state; arguments are as in `Block.forward`."""
        names, states = self._names(), []
        for stored, block in zip(names, self._blocks(), strict=True):
            own = None if state is None else _renamed(state, stored)
            if self.keeps_activations or not (self.training and torch.is_grad_enabled()):
                x, layer_state = block(x, own, pad_mask=pad_mask, documents=documents)
            else:
                read = partial(block, pad_mask=pad_mask, documents=documents)
                x, layer_state = checkpoint(read, x, own, use_reentrant=False)
            states.append(layer_state)
        return self.norm(x), _joined(states, names)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """Decode step for x_t (B, D)."""
        names, states = self._names(), []
        for stored, block in zip(names, self._blocks(), strict=True):
            x_t, layer_state = block.step(x_t, _renamed(state, stored))
            states.append(layer_state)
        return self.norm(x_t), _joined(states, names)

    def state_spec(self) -> StateSpec:
        """State entries: the shared token counters, then each layer's other entries in order."""
        entries = [(k, entry) for k, block in enumerate(self._blocks()) for entry in block.mixer.state_spec()]
        counters = {entry.name: entry for _, entry in entries if entry.kind == "counter"}
        return *counters.values(), *(StateEntry(f"{k}_{e.name}", *e[1:]) for k, e in entries if e.kind != "counter")

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        states = [block.init_state(batch_size, memory, memory_mask) for block in self._blocks()]
        return _joined(states, self._names())

    def state_size(self, seq_len: int) -> int:
        return size_of(self.state_spec(), seq_len)

    def _blocks(self) -> Iterator[Block]:
        return cast(Iterator[Block], iter(self.blocks))

    def _names(self) -> list[dict[str, str]]:
        """Per layer, the names of its entries in the joint state."""
        return [
            {entry.name: entry.name if entry.kind == "counter" else f"{k}_{entry.name}" for entry in spec}
            for k, spec in enumerate(block.mixer.state_spec() for block in self._blocks())
        ]


def forget_activations(model: nn.Module) -> None:
    """Enables activation checkpointing in all stacks of a model.

    Raises:
        ValueError: the model has no stack.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if not stacks:
        raise ValueError(f"{type(model).__name__} has no Stack of blocks whose activations could be recomputed")
    for stack in stacks:
        stack.keeps_activations = False


def _renamed(state: State, stored: dict[str, str]) -> State:
    """One layer's state, under the layer's own names."""
    return {own: state[name] for own, name in stored.items()}


def _joined(states: Sequence[State], names: list[dict[str, str]]) -> State:
    """Joint state of all layers in the order of `state_spec`: shared entries first."""
    layers = list(zip(names, states, strict=True))
    shared = {own: entry for stored, state in layers for own, entry in state.items() if stored.get(own) == own}
    return shared | {
        f"{k}_{own}": entry
        for k, (stored, state) in enumerate(layers)
        for own, entry in state.items()
        if stored.get(own) != own
    }
