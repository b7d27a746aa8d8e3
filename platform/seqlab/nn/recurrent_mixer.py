"""A mixer whose two forms are one function of a sequence and the state before it.

B batch, T length, D d_model.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from seqlab.mixer import Mixer, State
from seqlab.nn.padding import leading_pads, rotate_rows


class RecurrentMixer(Mixer):
    """A subclass gives `mix` and its initial state; `step` is `mix` of one position.

    Attributes:
        looks_back: whether it looks back a fixed number of places (a short convolution, a token shift).
    """

    looks_back: bool = False

    @abstractmethod
    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        """All positions at once.

        Args:
            x: (B, T, D).
            state: where it starts.
            real: (B, T) bool; what is not real leaves the state as it is. None = all are. Where `looks_back`, rows
                begin with their real tokens.
            single: T is 1, and no loop is wanted.

        Returns:
            y (B, T, D) and the new state.
        """

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        state = self.init_state(x.shape[0]) if state is None else state
        if pad_mask is None or not self.looks_back:
            return self.mix(x, state, pad_mask, single=False)
        lead = leading_pads(pad_mask)
        y, new_state = self.mix(rotate_rows(x, lead), state, rotate_rows(pad_mask, lead), single=False)
        return rotate_rows(y, -lead), new_state

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.mix(x_t.unsqueeze(1), state, None, single=True)
        return y.squeeze(1), new_state
