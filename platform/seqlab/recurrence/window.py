"""What the fixed windows share: each output is a function of the last inputs, a fixed number of them.

B batch, T length, D d_model, R reach.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from seqlab.mixer import Entry, Spec, State
from seqlab.nn.recurrent_mixer import AlignedMixer
from seqlab.nn.short_conv import extend_history


class Window(AlignedMixer):
    """Sees an input and the `reach` ones before it, zeros before the first. The state is `inputs (B, R, D)`.

    Args:
        reach: R, at least 1 (ValueError).
    """

    def __init__(self, d_model: int, layer: int, *, reach: int) -> None:
        super().__init__(d_model, layer)
        if reach < 1:
            raise ValueError(f"a window must hold at least 2 inputs, got {reach + 1}")
        self.reach = reach

    @abstractmethod
    def mix(self, history: Tensor) -> Tensor:
        """y (B, T, D) for the last T inputs of history (B, R + T, D)."""

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        history, inputs = extend_history(state["inputs"], x, length)
        return self.mix(history), {"inputs": inputs}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.run(x_t.unsqueeze(1), state, None)
        return y.squeeze(1), new_state

    def state_spec(self) -> Spec:
        return (Entry("inputs", (self.reach, self.d_model), kind="window"),)
