"""Bahdanau attention: a recurrent decoder that attends to the memory before each step.

B batch, T query length, S memory length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab.attention.alignment import Additive, AlignmentScore
from seqlab.attention.memory import MemoryMixer, masked_softmax
from seqlab.mixer import State, StateEntry, StateSpec
from seqlab.nn.numerics import without_autocast
from seqlab.nn.scan import Carry, scan_over_time


class AdditiveAttention(MemoryMixer):
    """GRU that attends to the memory before each step (Bahdanau et al. 2015, "Neural machine translation by jointly
    learning to align and translate", section 3.1 and appendix A.2.2).

    a_t = softmax(score(s_{t-1}, h_j)), c_t = sum_j a_tj h_j, s_t = GRU([x_t; c_t], s_{t-1}), and the output is the
    paper's maxout of U_o s_t + V_o x_t + C_o c_t. The GRU is PyTorch's, whose reset gate acts after the recurrent
    product. s_0 is 0, whereas the paper computes it from the memory.

    The state is `memory_k (B, S, D)`, the memory as prepared by `score`; `memory_v (B, S, D)`, the memory itself;
    `memory_mask (B, S)`; and `h (B, D)`, the GRU state s. The context is recomputed from these.

    Args:
        score: factory of the alignment score, called with d_model: Additive, the paper's v^T tanh(W s_{t-1} + U h_j);
            Dot, the dot product with the decoder's previous state; or General.
    """

    def __init__(self, d_model: int, layer: int = 0, *, score: Callable[[int], AlignmentScore] = Additive) -> None:
        super().__init__(d_model, layer)
        self.score = score(d_model)
        self.cell = nn.GRUCell(2 * d_model, d_model)
        self.out_proj = nn.Linear(3 * d_model, 2 * d_model, bias=False)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.score.read(memory), memory

    def carried(self) -> StateSpec:
        return (StateEntry("h", (self.d_model,)),)

    def flops(self, new: int, seen: int) -> int:
        contexts = 2 * new * seen * self.d_model
        return contexts + self.score.flops(new, seen, self.d_model)

    def forward(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> tuple[Tensor, State]:
        """Processes all positions step by step: x (B, T, D) to (B, T, D), and the new state.

        Raises:
            ValueError: the state is missing or does not match this mixer and batch.
        """
        state = self.begin(x, state)
        h, context, last = self._unroll(x, state, pad_mask)  # (B, T, D), (B, T, D), (B, D)
        return self._readout(h, x, context), state | {"h": last}

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        state = self.begin(x_t, state)
        with without_autocast(x_t):
            x_t = x_t.to(state["h"].dtype)
            h, context = self._next(x_t, state["h"], state)  # (B, D) each
        return self._readout(h, x_t, context), state | {"h": h}

    def attention_weights(self, x: Tensor, state: State | None = None, *, pad_mask: Tensor | None = None) -> Tensor:
        """Attention weights (B, 1, T, S) of each step over x (B, T, D) on the memory. Rows sum to 1."""
        state = self.begin(x, state)
        h, _, _ = self._unroll(x, state, pad_mask)
        before = torch.cat((state["h"].unsqueeze(1), h[:, :-1]), dim=1)  # (B, T, D)
        return self._weights(before, state).unsqueeze(1)  # (B, 1, T, S)

    def _unroll(self, x: Tensor, state: State, pad_mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """s and c of each step, (B, T, D) each, and the last s. Padding leaves s unchanged."""
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if pad_mask is None else pad_mask

        def step(carry: Carry, now: tuple[Tensor, ...]) -> tuple[Carry, Tensor]:
            x_t, is_real = now
            h, context = self._next(x_t, carry[0], state)  # (B, D) each
            h = torch.where(is_real.unsqueeze(-1), h, carry[0])
            return (h,), torch.cat((h, context), dim=-1)

        with without_autocast(x):
            # (B, T, 2 D), (B, D)
            outputs, (last,) = scan_over_time(step, (state["h"],), (x.to(state["h"].dtype), real))
        h, context = outputs.chunk(2, dim=-1)  # (B, T, D) each
        return h, context, last

    def _next(self, x_t: Tensor, h: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """s_t and c_t, (B, D) each, from x_t (B, D) and s_{t-1}."""
        weights = self._weights(h.unsqueeze(1), state)  # (B, 1, S)
        context = (weights @ state["memory_v"].to(h.dtype)).squeeze(1)  # (B, D)
        return self.cell(torch.cat((x_t, context), dim=-1), h), context

    def _weights(self, h: Tensor, state: State) -> Tensor:
        """Attention weights (B, T, S) for the previous steps' s (B, T, D)."""
        scores = self.score(h, state["memory_k"].to(h.dtype))  # (B, T, S)
        return masked_softmax(scores, state["memory_mask"].unsqueeze(1))

    def _readout(self, h: Tensor, x: Tensor, context: Tensor) -> Tensor:
        """Maxout over pairs of the 2 D channels (Goodfellow et al. 2013, "Maxout networks")."""
        pairs = self.out_proj(torch.cat((h, x.to(h.dtype), context), dim=-1))  # (..., 2 D)
        y: Tensor = torch.maximum(pairs[..., ::2], pairs[..., 1::2])  # (..., D)
        return y
