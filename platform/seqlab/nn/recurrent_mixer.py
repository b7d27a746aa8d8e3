"""Mixers that carry a state over time, for which padding is the identity.

B batch, T length, D d_model.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from seqlab.mixer import Mixer, State
from seqlab.nn.padding import is_real, leading_pads, rotate_rows


class AlignedMixer(Mixer):
    """Mixer whose implementation never sees leading padding: rows are rotated past it, and outputs rotated back."""

    @abstractmethod
    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        """Implements `forward` for x (B, T, D) whose rows start with `length` (B,) int64 real tokens; None = all T.

        Outputs at padding are arbitrary. The new state is the state after the last real token. If the mixer is not
        causal, both states are empty.
        """

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        if state is None:
            state = self.init_state(x.shape[0]) if self.causal else {}
        if pad_mask is None:
            return self.run(x, state, None)
        lead = leading_pads(pad_mask)  # (B,)
        y, new_state = self.run(rotate_rows(x, lead), state, pad_mask.sum(dim=1))
        return rotate_rows(y, -lead), new_state


class RecurrentMixer(AlignedMixer):
    """Mixer whose two forms share one function of a sequence and a state: `step` is `mix` over one position.

    Attributes:
        looks_back: whether it reads a fixed number of previous inputs (a short convolution, a token shift).
    """

    looks_back: bool = False

    @abstractmethod
    def mix(self, x: Tensor, state: State, real: Tensor | None, *, single: bool) -> tuple[Tensor, State]:
        """Processes all positions at once.

        Args:
            x: (B, T, D).
            state: initial state.
            real: (B, T) bool, True = a real token; padding leaves the state unchanged. None = all are real. With
                `looks_back`, padding is trailing only.
            single: whether T is 1, so that no loop over time is needed.

        Returns:
            y (B, T, D) and the new state.
        """

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        if self.looks_back or pad_mask is None:
            return super().forward(x, state, pad_mask=pad_mask)
        # Padding leaves the state unchanged wherever it occurs, so rows need no rotation.
        return self.mix(x, self.init_state(x.shape[0]) if state is None else state, pad_mask, single=False)

    def run(self, x: Tensor, state: State, length: Tensor | None) -> tuple[Tensor, State]:
        return self.mix(x, state, None if length is None else is_real(x, length).squeeze(-1), single=False)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        y, new_state = self.mix(x_t.unsqueeze(1), state, None, single=True)  # y (B, 1, D)
        return y.squeeze(1), new_state
