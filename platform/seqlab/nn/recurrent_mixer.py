"""Mixers that carry a state over time, and what padding is to them: the identity.

B batch, T length, D d_model.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from seqlab.mixer import Mixer, State
from seqlab.nn.padding import is_real, leading_pads, rotate_rows


class AlignedMixer(Mixer):
    """A mixer that sees no leading pads: its rows are rotated past them, and the outputs back."""

    @abstractmethod
    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        """`forward` of x (B, T, D) whose rows begin with their real tokens: `length` (B,) int64 of them, or all.

        Outputs at pads may be anything; the new state is the one after the last real token. Where the mixer is not
        causal, both states are empty.
        """

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        if state is None:
            state = self.init_state(x.shape[0]) if self.causal else {}
        if pad_mask is None:
            return self.run(x, state, None)
        lead = leading_pads(pad_mask)
        y, new_state = self.run(rotate_rows(x, lead), state, pad_mask.sum(dim=1))
        return rotate_rows(y, -lead), new_state


class RecurrentMixer(AlignedMixer):
    """A mixer whose two forms are one function of a sequence and the state before it: `step` is `mix` of one position.

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
        if self.looks_back or pad_mask is None:
            return super().forward(x, state, pad_mask=pad_mask)
        # What leaves the state as it is does so wherever it stands: no row is turned.
        return self.mix(x, self.init_state(x.shape[0]) if state is None else state, pad_mask, single=False)

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        return self.mix(x, state, None if length is None else is_real(x, length).squeeze(-1), single=False)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.mix(x_t.unsqueeze(1), state, None, single=True)
        return y.squeeze(1), new_state
