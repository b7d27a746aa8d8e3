"""A stack of blocks whose states are one flat state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from seqlab.mixer import Mixer, Spec, State, size_of
from seqlab.nn.block import Block

if TYPE_CHECKING:
    from seqlab.positions import PositionalEncoding

MixerFactory = Callable[[int, int], Mixer]


def layers_of(mixer: MixerFactory | list[MixerFactory], num_layers: int) -> list[MixerFactory]:
    """What makes the mixer of each layer: a list is repeated over the layers (a hybrid stack).

    Raises:
        ValueError: it is longer than the stack, or one of both is empty.
    """
    pattern = mixer if isinstance(mixer, list) else [mixer]
    if num_layers < 1 or not 1 <= len(pattern) <= num_layers:
        raise ValueError(f"num_layers is {num_layers}, but the list of mixers has {len(pattern)} entries")
    return [pattern[k % len(pattern)] for k in range(num_layers)]


class Stack(nn.Module):
    """A block for each mixer. Layer k's state entries are prefixed `k_`; those that count tokens are stored once.

    Args:
        mixers: one a layer.
        positions: attached to every mixer of the sequence.
        block: called with d_model and the layer's mixer.
        causal: whether every mixer must be causal.

    Raises:
        ValueError: a mixer that is not causal in a causal stack, or one that the positions do not fit.
    """

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
                    f"layer {k} is {type(layer).__name__}, which is not causal as it is set, but this model is; "
                    "give it a causal mixer or pattern"
                )
            # Cross-attention beside what mixes the sequence itself is told no positions of its own.
            if not layer.needs_memory or all(other.needs_memory for other in mixers):
                layer.attach_positions(positions)
        blocks = [block(layer.d_model, layer) for layer in mixers]
        self.blocks = nn.ModuleList(blocks)
        self.norm = blocks[-1].final_norm()
        self.first_call = max(layer.first_call for layer in mixers)

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, T, D) to (B, T, D), and the new state; the arguments are the mixers'."""
        layer_states: list[State] = []
        for k, block in enumerate(self._blocks()):
            x, layer_state = block(x, None if state is None else self._select(state, k, block.mixer), pad_mask=pad_mask)
            layer_states.append(layer_state)
        return self.norm(x), self._joined(layer_states)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        """One position: x_t (B, D)."""
        layer_states: list[State] = []
        for k, block in enumerate(self._blocks()):
            x_t, layer_state = block.step(x_t, self._select(state, k, block.mixer))
            layer_states.append(layer_state)
        return self.norm(x_t), self._joined(layer_states)

    def state_spec(self) -> Spec:
        """What counts tokens first, once, and then the layers' own entries in order."""
        specs = [block.mixer.state_spec() for block in self._blocks()]
        counters = {entry.name: entry for spec in specs for entry in spec if entry.kind == "counter"}
        own = [
            entry._replace(name=f"{k}_{entry.name}")
            for k, spec in enumerate(specs)
            for entry in spec
            if entry.kind != "counter"
        ]
        return *counters.values(), *own

    def init_state(self, batch_size: int, memory: Tensor | None = None, memory_mask: Tensor | None = None) -> State:
        return self._joined([block.mixer.init_state(batch_size, memory, memory_mask) for block in self._blocks()])

    def state_size(self, seq_len: int) -> int:
        return size_of(self.state_spec(), seq_len)

    def _blocks(self) -> Iterator[Block]:
        return cast(Iterator[Block], iter(self.blocks))

    def _select(self, state: State, k: int, mixer: Mixer) -> State:
        """Layer k's state."""
        return {
            entry.name: state[entry.name if entry.kind == "counter" else f"{k}_{entry.name}"]
            for entry in mixer.state_spec()
        }

    def _joined(self, layer_states: list[State]) -> State:
        """One state of all layers, as `state_spec` has it."""
        counters: State = {}
        own: State = {}
        for k, (block, state) in enumerate(zip(self._blocks(), layer_states, strict=True)):
            counting = {entry.name for entry in block.mixer.state_spec() if entry.kind == "counter"}
            for name, entry in state.items():
                if name in counting:
                    counters[name] = entry
                else:
                    own[f"{k}_{name}"] = entry
        return counters | own
